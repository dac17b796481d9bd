"""The physics of rooflines, pure: values in, values out. Imports only numpy and msgspec."""

"""One widget a file: each turns a part of the view into lines."""

"""The screen: consumes the stream and shows it. The only package that imports textual."""

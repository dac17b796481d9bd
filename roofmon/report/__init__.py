"""Views for other places than the screen: text for people, JSON for programs."""

"""What the devices are and what they are doing: read-only, and cheap enough to run all day."""

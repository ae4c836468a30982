"""What holds for the house as a whole: its front door, its documents, its imports."""

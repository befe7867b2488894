"""Files of clients that jobs use: checked, stored, and kept for a while."""

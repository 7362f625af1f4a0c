"""The Gymnasium faces of the game."""

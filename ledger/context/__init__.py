"""What a model is sent, and what is remembered of it. The stages themselves live in `projector.context`."""

"""What a provider refuses, and how a view is mended for it. Reading must not live here."""

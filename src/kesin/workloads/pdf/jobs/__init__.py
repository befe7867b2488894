"""One render job from request to result."""

"""Drawing: pure functions from a picture and a size to lines of exactly that size."""

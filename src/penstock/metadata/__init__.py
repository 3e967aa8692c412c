"""What the cluster knows of itself: metadata records become an immutable image. PURE."""

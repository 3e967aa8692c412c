"""One partition on one node, as leader or follower: what counts towards the high watermark, who is
in sync, who is fenced. PURE."""

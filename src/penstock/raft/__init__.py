"""PURE. The quorum of controllers: who leads, what is committed. KRaft as Apache Kafka has it
(KIP-595, KIP-630, KIP-996).

`machine.Raft.step(event, now)` gives an ordered list of effects. The shell carries them out one by
one, and hands in no other event before a `SaveState`, `Truncate` or `InstallSnapshot` is done. Time
and rng come in as numbers; `log_view.LogView` tells of the log.

The laws (each has a test in tests/raft):
- An epoch and a vote are on disk before they are spoken of: `SaveState` comes before every `Send`
  and `Reply` of its step.
- A voter gives one vote an epoch, and none to a candidate whose log is behind its own.
- A leader commits by counting only entries of its own epoch; what is before them is committed with
  them.
- An end counts once it is synced: the leader's own, and a follower's, whose next fetch offset says
  it.
- A follower's progress counts only where its log matches the leader's; where it does not, it
  truncates at the diverging epoch.
- The high watermark never goes back, and no follower truncates below its own.
- A leader appends to its log and never truncates it, nor loads a snapshot.
- Nobody becomes a candidate, and so raises the epoch, before a majority has said that it would vote
  for it (pre-vote); who still hears from a leader does not say so.
- A leader that no majority fetches from steps down (check-quorum).
"""

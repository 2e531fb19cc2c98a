"""What `ddpmon diagnose --help` says: the columns, and a table to begin with."""

DIAGNOSE_HELP = """Diagnose a table made from logs: the same findings as for a live run.

TABLE is text with a heading and one row for each step and rank:

\b
  step,rank,duration_ms,exposed_ms,forward_ms
  0,0,172.1,52.0,31.2
  0,1,172.3,2.1,81.4

Cells are separated by commas, semicolons or tabs; the order of columns and rows is free. Decimals have a point. A cell
left empty, and a row, rank or column that is not there, is missing, not zero. Durations are milliseconds:

\b
  step         needed: synchronising steps, counted from 0
  rank         needed: counted from 0
  duration_ms  the whole step, from one gradient reduction's end to the next
  exposed_ms   last gradient ready to the end of the reduction: waiting for the
               others, and transfer that backward did not hide
  work_ms      duration - exposed - barrier; it stands in for either of the two,
               and alone: waits are then derived from the ranks' work
  barrier_ms   in barriers and other collectives called from Python
  input_ms, forward_ms, backward_ms (up to the last gradient), optimizer_ms
               where the work goes: without them no phase is named
  gc_ms        in Python's garbage collector
  marked_ms    in evaluations and checkpoints: such steps are not compared
  node         the host; for verdicts on whole hosts
  loss, samples

duration_ms alone is refused: under synchronous DDP every rank's step takes equally long.

With --flight-recorder DIR there is no TABLE: it says which rank did not join a collective, from the files that torch's
flight recorder has dumped on a timeout.

With --marks, TABLE has one row per mark instead, for example from a profiler's trace:

\b
  step,rank,mark,host_ms,device_ms
  7,0,forward,1041.22,1041.30

\b
  step       the training loop's iteration; its optimizer marks come after
             synced
  mark       input (the loader has returned; host time only), forward
             (begins), forwarded (has ended), ready (last gradient computed),
             synced (all reduced), optimizer (begins), optimized (has ended);
             forward, ready and synced are needed
  host_ms    when the host recorded it
  device_ms  when the device passed it; empty where there is no device time
  rank, node as above

Both clocks may count from any moment, another one on each rank. With device times, ranks are judged by their own pace:
the time that a step would take if the rank never waited for the others.

Findings that were over before the table's end are shown too, and count for --fail-on with their worst severity. Rows
that cannot be read are named by line on stderr, and left out.

Exit codes: 0 read, 1 a finding at or above --fail-on, 2 usage, or a table that cannot be judged,
4 the output cannot be written.
"""

"""Shapes of loops over one variable, chosen by `coiterate.forall`.

shape          when                                       file      loop
counted        no leader                                  counted   for v in lo .. hi, in lanes or at once
  side by side a sum in lanes at every coordinate         jammed    for v in lo .. hi by 4: four sums at once
  rows         a register reduces one fiber each         flat      blocks of rows: all entries first, then row by row
  short rows   fibers of few entries, any statements   distributed blocks of rows: all entries of one statement after the other
single walk    one leader, one case                       merge     for p in lo .. hi: v = crd[p]
  pairs        a register, few entries                    pairs     for p in lo .. hi by 2: two sums
  gathered     a register, where processors gather fast   gathered  for p in lo .. hi by 8, the last vector masked
  in lanes     nothing but its values changes             places    for p in lo .. hi by 8, entries appended side by side
  side by side a sum in lanes at every place              jammed    for p in lo .. hi by 4: four sums at once
  runs         a run-length level                         merge     for q in runs: counted over start[q] .. stop[q]
  bands        consecutive coordinates, of all leaders    merge     counted over what they have in common
intersection   several leaders, all needed                merge     a cursor each: merged, or galloped through
universe       work left without leaders                  gaps      counted over everything or over gaps, leaders between
union          two or three leaders, each of them enough  unions    all while all last, without branches; then what is left
independent    parts that accumulate one by one           parts     sentinel, one test per part
sentinel       any other mix                              merge     v = min over minimal cases of (max over leaders)
"""

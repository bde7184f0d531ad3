"""Code for loops over one variable, in the shapes that `rewrite/iteration` plans (`coiterate` calls them).

shape          when                                       file
range          no leader                                  counted         for v in lo .. hi, in lanes or at once
side_by_side   a sum in lanes at every coordinate, place  unroll_and_jam  for v in lo .. hi by 4: four sums at once
summed_rows    a register reduces one fiber each          row_blocks      blocks of rows: all entries first, then row by row
staged_rows    fibers of few entries, any statements      distributed     blocks of rows: all entries of one statement after the other
padded         a sum at single elements, few entries      padded          six places of each segment unasked, then the rest
entries        one leader, one case                       merge           for p in lo .. hi: v = crd[p]
pairs          a register, few entries                    reduce          for p in lo .. hi by 2: two sums
unrolled       a register                                 reduce          for p in lo .. hi by 4: four sums, in lanes where possible
gathered       a register, where processors gather fast   reduce          for p in lo .. hi by 8, the last vector masked
stored_values  nothing but values at its places changes   stored_values   for p in lo .. hi by 8, entries appended side by side
runs           run-length levels                          merge           for q in runs: counted over start[q] .. stop[q]
band           consecutive coordinates, of all leaders    merge           counted over what they have in common
intersection   several leaders, all needed                merge           a cursor each: merged, or galloped through
overwrite      work left without leaders, in place        gaps            counted over everything, then the leaders once more
gaps           work left without leaders                  gaps            counted over gaps, leaders between
coordinates    the same, with loops inside                gaps            for v in lo .. hi: who is there
union          two or three leaders, each of them enough  unions          all while all last, without branches; then what is left
independent    parts that accumulate one by one           independent     sentinel, one test per part
merge          any other mix                              merge           v = min over minimal cases of (max over leaders)
"""

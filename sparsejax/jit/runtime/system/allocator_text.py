"""The machine code of `allocator`, as LLVM text: one function `(old, size, what)`.

    (null, size, what)     take        (block, 0, _)          give
    (block, size, what)    resize      (block, size, SETTLE)  settle
    (null, -1, _)          drop

The state, another symbol, holds: the limit, the bytes that are free, the number of the next entry, how many free blocks there are; from word 8 on the
sizes of free blocks, which only tell where looking is worth it, then where they are, or 0; and for every kind of size (eight for each power
of two, as sizes are rounded) how many free blocks it has, and where the last of them went. So nobody searches for what is not there: with a list of
1,000 blocks of other sizes, taking one and giving it back took 25 microseconds, and 0.3 with this.
"""

from __future__ import annotations

from sparsejax.jit.codegen.abi import STATE

SMALLEST = 32 << 10
"""Bytes from which blocks are recycled here: segments that threads fill have some 50 KB, which the C library gives back to the system every time."""
HUGE = 4 << 20
"""Bytes from which on huge pages are asked for: 64 MB are touched in 4.3 ms instead of 33."""
SLOTS = 1 << 10
"""Entries for free blocks: lists of a bucket workspace are 512."""
FULL = SLOTS * 7 // 8
"""Free blocks that are kept at most, so that an entry for the next one is found at once."""
KINDS = 8 * (48 - 15)
"""Of sizes: eight for each power of two from `SMALLEST` on."""
COPIED = 1 << 20
"""Bytes up to which a block that grows moves into a free one: that costs less than the faults of fresh pages behind it."""
WORDS = 8 + 2 * SLOTS + 2 * KINDS
"""Of the state."""


def text(mremap: bool = True) -> str:
    """The LLVM text, for systems that have `mremap` or for the C heap."""
    if not mremap:
        return _PORTABLE
    sizes = {"smallest": SMALLEST, "huge": HUGE, "huge_page": 2 << 20, "slots": SLOTS, "words": WORDS}
    sizes |= {"last_slot": SLOTS - 1, "copied": COPIED, "full": FULL, "last_kind": KINDS - 1, "kinds": 8 + 2 * SLOTS}
    sizes |= {"smallest_bit": SMALLEST.bit_length() - 1}
    return _TEXT.format(**sizes, state=f"@{STATE}")


_PORTABLE = """\
declare ptr @realloc(ptr, i64)
declare ptr @calloc(i64, i64)
declare void @free(ptr)

define ptr @kernel(ptr %old, i64 %size, i64 %what) nounwind {
  %none = icmp sle i64 %size, 0
  br i1 %none, label %give, label %some
give:
  call void @free(ptr %old)
  ret ptr null
some:
  switch i64 %what, label %move [ i64 1, label %clear i64 2, label %keep i64 3, label %clear i64 4, label %move ]
keep:
  ret ptr %old
clear:
  %zeros = call ptr @calloc(i64 %size, i64 1)
  ret ptr %zeros
move:
  %moved = call ptr @realloc(ptr %old, i64 %size)
  ret ptr %moved
}
"""

_TEXT = """\
{state} = external global [{words} x i64]
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare ptr @mremap(ptr, i64, i64, i32, ...)
declare i32 @madvise(ptr, i64, i32)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

define internal ptr @entry(i64 %k, i64 %far) nounwind {{           ; the size of a free block (far = 0), or where it is (1)
  %row = mul i64 %far, {slots}
  %word = add i64 %k, %row
  %at = add i64 %word, 8
  %place = getelementptr i64, ptr {state}, i64 %at
  ret ptr %place
}}

define internal ptr @kind(i64 %size) nounwind {{                    ; of a size: how many free blocks it has, and where the last one went
  %zeros = call i64 @llvm.ctlz.i64(i64 %size, i1 0)
  %log = sub i64 63, %zeros
  %shift = sub i64 60, %zeros
  %top = lshr i64 %size, %shift
  %eighth = and i64 %top, 7
  %above = sub i64 %log, {smallest_bit}
  %first = shl i64 %above, 3
  %number = or i64 %first, %eighth
  %known = call i64 @llvm.umin.i64(i64 %number, i64 {last_kind})
  %row = shl i64 %known, 1
  %at = add i64 %row, {kinds}
  %place = getelementptr i64, ptr {state}, i64 %at
  ret ptr %place
}}

define internal void @count(ptr %block, i64 %bytes, i64 %one) nounwind {{  ; a free block more, or one less
  %held = getelementptr i64, ptr {state}, i64 1
  %before = atomicrmw add ptr %held, i64 %bytes seq_cst
  %size = load i64, ptr %block
  %kind = call ptr @kind(i64 %size)
  %alike = atomicrmw add ptr %kind, i64 %one seq_cst
  %free.at = getelementptr i64, ptr {state}, i64 3
  %free = atomicrmw add ptr %free.at, i64 %one seq_cst
  ret void
}}

define internal ptr @uncounted(i64 %taken) nounwind {{              ; a block that is no longer in the list
  %none = icmp eq i64 %taken, 0
  br i1 %none, label %nothing, label %something
nothing:
  ret ptr null
something:
  %block = inttoptr i64 %taken to ptr
  %weight.at = getelementptr i64, ptr %block, i64 1
  %weight = load i64, ptr %weight.at
  %less = sub i64 0, %weight
  call void @count(ptr %block, i64 %less, i64 -1)
  ret ptr %block
}}

define internal ptr @pull(i64 %k) nounwind {{                       ; the free block k, or null; no longer in the list
  %place = call ptr @entry(i64 %k, i64 1)
  %taken = atomicrmw xchg ptr %place, i64 0 seq_cst
  %block = call ptr @uncounted(i64 %taken)
  ret ptr %block
}}

define internal void @unmap(ptr %block) nounwind {{
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %some
some:
  %size = load i64, ptr %block
  %status = call i32 @munmap(ptr %block, i64 %size)
  br label %done
done:
  ret void
}}

define internal void @put(ptr %block) nounwind {{                   ; to the end of the list
  %weight.at = getelementptr i64, ptr %block, i64 1
  %weight = load i64, ptr %weight.at
  %size = load i64, ptr %block
  %limit = load atomic i64, ptr {state} monotonic, align 8
  %heavy = icmp sgt i64 %weight, %limit
  br i1 %heavy, label %system, label %insert
system:
  call void @unmap(ptr %block)
  ret void
insert:
  call void @count(ptr %block, i64 %weight, i64 1)
  %next.at = getelementptr i64, ptr {state}, i64 2
  %ticket = atomicrmw add ptr %next.at, i64 1 seq_cst
  %address = ptrtoint ptr %block to i64
  br label %try
try:                                                               ; the next entry that is empty
  %tries = phi i64 [ 0, %insert ], [ %tries.next, %occupied ]
  %there = add i64 %ticket, %tries
  %number = urem i64 %there, {slots}
  %size.place = call ptr @entry(i64 %number, i64 0)
  %place = call ptr @entry(i64 %number, i64 1)
  %seen = load atomic i64, ptr %place monotonic, align 8
  %empty = icmp eq i64 %seen, 0
  br i1 %empty, label %exchange, label %occupied
exchange:
  %pair = cmpxchg ptr %place, i64 0, i64 %address seq_cst seq_cst
  %placed = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %placed, label %note, label %occupied
note:
  store atomic i64 %size, ptr %size.place monotonic, align 8
  %kind = call ptr @kind(i64 %size)
  %hint = getelementptr i64, ptr %kind, i64 1
  store atomic i64 %number, ptr %hint monotonic, align 8
  br label %bound
occupied:
  %tries.next = add i64 %tries, 1
  %again = icmp slt i64 %tries.next, {slots}
  br i1 %again, label %try, label %nowhere
nowhere:                                                           ; others were faster everywhere
  %less = sub i64 0, %weight
  call void @count(ptr %block, i64 %less, i64 -1)
  call void @unmap(ptr %block)
  br label %bound
bound:
  %held.at = getelementptr i64, ptr {state}, i64 1
  %free.at = getelementptr i64, ptr {state}, i64 3
  br label %look
look:                                                              ; the oldest first
  %k = phi i64 [ 1, %bound ], [ %k.next, %oldest ]
  %held = load atomic i64, ptr %held.at seq_cst, align 8
  %heavier = icmp sgt i64 %held, %limit
  %free = load atomic i64, ptr %free.at seq_cst, align 8
  %many = icmp sgt i64 %free, {full}
  %much = or i1 %heavier, %many
  %more = icmp sle i64 %k, {slots}
  %go = and i1 %much, %more
  br i1 %go, label %oldest, label %done
oldest:
  %turn = add i64 %there, %k
  %old.number = urem i64 %turn, {slots}
  %old = call ptr @pull(i64 %old.number)
  call void @unmap(ptr %old)
  %k.next = add i64 %k, 1
  br label %look
done:
  ret void
}}

define internal void @drop() nounwind {{
  br label %look
look:
  %k = phi i64 [ 0, %0 ], [ %k.next, %look ]
  %block = call ptr @pull(i64 %k)
  call void @unmap(ptr %block)
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, {slots}
  br i1 %more, label %look, label %done
done:
  ret void
}}

define internal i64 @rounded(i64 %size) nounwind {{                 ; with the first line, to an eighth of a power of two, in whole pages
  %whole = add i64 %size, 63
  %zeros = call i64 @llvm.ctlz.i64(i64 %whole, i1 0)
  %shift = sub i64 60, %zeros
  %step = shl i64 1, %shift
  %large = icmp sge i64 %whole, {huge}
  %least = select i1 %large, i64 {huge_page}, i64 4096
  %small = icmp slt i64 %step, %least
  %unit = select i1 %small, i64 %least, i64 %step
  %over = add i64 %whole, %unit
  %mask = sub i64 0, %unit
  %room = and i64 %over, %mask
  ret i64 %room
}}

define internal ptr @fresh(i64 %room, i1 %sparse) nounwind {{       ; pages of the system; huge ones unless few will be touched
  %large = icmp sge i64 %room, {huge}
  %dense = xor i1 %sparse, true
  %huge = and i1 %large, %dense
  %slack = select i1 %huge, i64 {huge_page}, i64 0
  %all = add i64 %room, %slack
  %raw = call ptr @mmap(ptr null, i64 %all, i32 3, i32 34, i32 -1, i64 0)
  %start = ptrtoint ptr %raw to i64
  %failed = icmp eq i64 %start, -1
  br i1 %failed, label %nothing, label %mapped
nothing:
  ret ptr null
mapped:
  br i1 %huge, label %align, label %ready
align:
  %over = add i64 %start, {huge_page}
  %past = sub i64 %over, 1
  %aligned = and i64 %past, -{huge_page}
  %head = sub i64 %aligned, %start
  %tail = sub i64 %slack, %head
  %headless = icmp eq i64 %head, 0
  br i1 %headless, label %end, label %cut
cut:
  %cut.status = call i32 @munmap(ptr %raw, i64 %head)
  br label %end
end:
  %end.at = add i64 %aligned, %room
  %end.ptr = inttoptr i64 %end.at to ptr
  %tailless = icmp eq i64 %tail, 0
  br i1 %tailless, label %advise, label %cut.end
cut.end:
  %end.status = call i32 @munmap(ptr %end.ptr, i64 %tail)
  br label %advise
advise:
  %aligned.ptr = inttoptr i64 %aligned to ptr
  %told = call i32 @madvise(ptr %aligned.ptr, i64 %room, i32 14)
  br label %ready
ready:
  %block = phi ptr [ %raw, %mapped ], [ %aligned.ptr, %advise ]
  %weight.at = getelementptr i64, ptr %block, i64 1
  %kept.at = getelementptr i64, ptr %block, i64 2
  %kept = zext i1 %dense to i64
  store i64 %room, ptr %block
  store i64 %room, ptr %weight.at
  store i64 %kept, ptr %kept.at
  ret ptr %block
}}

define internal ptr @recycled(i64 %room, i1 %exact) nounwind {{     ; the smallest free block with room, the newest first, or null
entry:
  %twofold = shl i64 %room, 1
  %quarter = lshr i64 %room, 2
  %little.more = add i64 %room, %quarter
  %most = select i1 %exact, i64 %little.more, i64 %twofold
  %first = call ptr @kind(i64 %room)
  %last = call ptr @kind(i64 %most)
  br label %kinds
kinds:                                                             ; that have free blocks
  %kind = phi ptr [ %first, %entry ], [ %kind.next, %next.kind ]
  %has = load atomic i64, ptr %kind monotonic, align 8
  %some = icmp sgt i64 %has, 0
  br i1 %some, label %search, label %next.kind
search:
  %hint = getelementptr i64, ptr %kind, i64 1
  %newest = load atomic i64, ptr %hint monotonic, align 8
  br label %look
look:
  %k = phi i64 [ 0, %search ], [ %k.next, %next ]
  %turn = sub i64 %newest, %k
  %slot = and i64 %turn, {last_slot}
  %size.place = call ptr @entry(i64 %slot, i64 0)
  %size = load atomic i64, ptr %size.place monotonic, align 8
  %enough = icmp sge i64 %size, %room
  %close = icmp sle i64 %size, %most
  %fits = and i1 %enough, %close
  br i1 %fits, label %there, label %next
there:
  %own.kind = call ptr @kind(i64 %size)
  %alike = icmp eq ptr %own.kind, %kind
  br i1 %alike, label %present, label %next
present:
  %place = call ptr @entry(i64 %slot, i64 1)
  %block.at = load atomic i64, ptr %place monotonic, align 8
  %free = icmp ne i64 %block.at, 0
  br i1 %free, label %pull, label %next
pull:
  %block = call ptr @pull(i64 %slot)
  %gone = icmp eq ptr %block, null
  br i1 %gone, label %next, label %check
check:                                                             ; the entry may have changed meanwhile
  %true.size = load i64, ptr %block
  %true.enough = icmp sge i64 %true.size, %room
  br i1 %true.enough, label %taken, label %back
back:
  call void @put(ptr %block)
  br label %nothing
taken:
  %before = sub i64 %slot, 1
  %hint.next = and i64 %before, {last_slot}
  store atomic i64 %hint.next, ptr %hint monotonic, align 8
  %weight.at = getelementptr i64, ptr %block, i64 1
  store i64 %true.size, ptr %weight.at
  ret ptr %block
next:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, {slots}
  br i1 %more, label %look, label %next.kind
next.kind:
  %kind.next = getelementptr i64, ptr %kind, i64 2
  %beyond = icmp ugt ptr %kind.next, %last
  br i1 %beyond, label %nothing, label %kinds
nothing:
  ret ptr null
}}

define internal ptr @small(i64 %size) nounwind {{                   ; from the C heap
  %over = add i64 %size, 127
  %room = and i64 %over, -64
  %block = call ptr @aligned_alloc(i64 64, i64 %room)
  ret ptr %block
}}

define internal ptr @take(i64 %size, i64 %what) nounwind {{
entry:
  %clean = icmp eq i64 %what, 1
  %few = icmp eq i64 %what, 3
  %zero = or i1 %clean, %few
  %exact = icmp ne i64 %what, 0
  %little = icmp slt i64 %size, {smallest}
  br i1 %little, label %heap, label %pages
heap:
  %block = call ptr @small(i64 %size)
  %none = icmp eq ptr %block, null
  br i1 %none, label %again, label %heap.got
again:
  call void @drop()
  %second = call ptr @small(i64 %size)
  %hopeless = icmp eq ptr %second, null
  br i1 %hopeless, label %nothing, label %heap.got
heap.got:
  %line = phi ptr [ %block, %heap ], [ %second, %again ]
  store i64 0, ptr %line
  %asked.at = getelementptr i64, ptr %line, i64 1
  store i64 %size, ptr %asked.at
  br i1 %zero, label %clear, label %ready
pages:
  %sane = icmp slt i64 %size, 1152921504606846976
  br i1 %sane, label %fitting, label %nothing
fitting:
  %room = call i64 @rounded(i64 %size)
  %large = icmp sge i64 %room, {huge}
  %sparse = and i1 %large, %few
  br i1 %sparse, label %map, label %recycle
recycle:
  %known = call ptr @recycled(i64 %room, i1 %exact)
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %map, label %used
used:
  br i1 %zero, label %clear, label %ready
map:
  %mapped = call ptr @fresh(i64 %room, i1 %sparse)
  %full = icmp eq ptr %mapped, null
  br i1 %full, label %map.again, label %ready
map.again:
  call void @drop()
  %remapped = call ptr @fresh(i64 %room, i1 %sparse)
  %failed = icmp eq ptr %remapped, null
  br i1 %failed, label %nothing, label %ready
clear:
  %dirty = phi ptr [ %line, %heap.got ], [ %known, %used ]
  %cleared.at = getelementptr i64, ptr %dirty, i64 8
  %cleared = call ptr @memset(ptr %cleared.at, i32 0, i64 %size)
  br label %ready
ready:
  %made = phi ptr [ %line, %heap.got ], [ %known, %used ], [ %mapped, %map ], [ %remapped, %map.again ], [ %dirty, %clear ]
  %data = getelementptr i64, ptr %made, i64 8
  ret ptr %data
nothing:
  ret ptr null
}}

define internal void @give(ptr %data) nounwind {{
  %block = getelementptr i64, ptr %data, i64 -8
  %size = load i64, ptr %block
  %little = icmp eq i64 %size, 0
  br i1 %little, label %heap, label %pages
heap:
  call void @free(ptr %block)
  ret void
pages:
  %kept.at = getelementptr i64, ptr %block, i64 2
  %kept = load i64, ptr %kept.at
  %system = icmp eq i64 %kept, 0
  br i1 %system, label %away, label %list
away:
  call void @unmap(ptr %block)
  ret void
list:
  call void @put(ptr %block)
  ret void
}}

define internal ptr @resize(ptr %data, i64 %size) nounwind {{
entry:
  %block = getelementptr i64, ptr %data, i64 -8
  %room = load i64, ptr %block
  %little = icmp eq i64 %room, 0
  br i1 %little, label %heap, label %pages
heap:
  %asked.at = getelementptr i64, ptr %block, i64 1
  %asked = load i64, ptr %asked.at
  %enough = icmp sge i64 %asked, %size
  br i1 %enough, label %same, label %copy
copy:
  %copied = call ptr @take(i64 %size, i64 0)
  %none = icmp eq ptr %copied, null
  br i1 %none, label %nothing, label %move
pages:
  %sane = icmp slt i64 %size, 1152921504606846976
  br i1 %sane, label %compare, label %nothing
compare:
  %needed = call i64 @rounded(i64 %size)
  %fits = icmp sge i64 %room, %needed
  br i1 %fits, label %same, label %grow
grow:
  %modest = icmp sle i64 %needed, {copied}
  br i1 %modest, label %look, label %extend
look:
  %other = call ptr @recycled(i64 %needed, i1 0)
  %missing = icmp eq ptr %other, null
  br i1 %missing, label %extend, label %into
into:
  %other.data = getelementptr i64, ptr %other, i64 8
  %filled = sub i64 %room, 64
  br label %move
move:                                                              ; what was there goes to another block
  %to = phi ptr [ %copied, %copy ], [ %other.data, %into ]
  %bytes = phi i64 [ %asked, %copy ], [ %filled, %into ]
  %moved = call ptr @memcpy(ptr %to, ptr %data, i64 %bytes)
  call void @give(ptr %data)
  ret ptr %to
extend:
  %kept.at = getelementptr i64, ptr %block, i64 2
  %kept = load i64, ptr %kept.at
  %sparse = icmp eq i64 %kept, 0
  %first = call ptr (ptr, i64, i64, i32, ...) @mremap(ptr %block, i64 %room, i64 %needed, i32 1)
  %first.at = ptrtoint ptr %first to i64
  %full = icmp eq i64 %first.at, -1
  br i1 %full, label %drop, label %done
drop:
  call void @drop()
  %second = call ptr (ptr, i64, i64, i32, ...) @mremap(ptr %block, i64 %room, i64 %needed, i32 1)
  %second.at = ptrtoint ptr %second to i64
  %refused = icmp eq i64 %second.at, -1
  br i1 %refused, label %nothing, label %done
done:
  %there = phi ptr [ %first, %extend ], [ %second, %drop ]
  %weight.at = getelementptr i64, ptr %there, i64 1
  store i64 %needed, ptr %there
  store i64 %needed, ptr %weight.at
  %large = icmp sge i64 %needed, {huge}
  %dense = xor i1 %sparse, true
  %huge = and i1 %large, %dense
  br i1 %huge, label %advise, label %ready
advise:
  %told = call i32 @madvise(ptr %there, i64 %needed, i32 14)
  br label %ready
ready:
  %there.data = getelementptr i64, ptr %there, i64 8
  ret ptr %there.data
same:
  ret ptr %data
nothing:
  ret ptr null
}}

define internal void @settle(ptr %data, i64 %size) nounwind {{
  %block = getelementptr i64, ptr %data, i64 -8
  %room = load i64, ptr %block
  %large = icmp sge i64 %room, {huge}
  %unit = select i1 %large, i64 {huge_page}, i64 4096
  %over = add i64 %size, 63
  %past = add i64 %over, %unit
  %mask = sub i64 0, %unit
  %used = and i64 %past, %mask
  %rest = sub i64 %room, %used
  %some = icmp sgt i64 %rest, 0
  br i1 %some, label %cut, label %done
cut:
  %weight.at = getelementptr i64, ptr %block, i64 1
  store i64 %used, ptr %weight.at
  %start = getelementptr i8, ptr %block, i64 %used
  %told = call i32 @madvise(ptr %start, i64 %rest, i32 4)
  br label %done
done:
  ret void
}}

define ptr @kernel(ptr %old, i64 %size, i64 %what) nounwind {{
  %new = icmp eq ptr %old, null
  %some = icmp sgt i64 %size, 0
  br i1 %new, label %none, label %there
none:
  br i1 %some, label %take, label %nothing
take:
  %taken = call ptr @take(i64 %size, i64 %what)
  ret ptr %taken
nothing:
  %all = icmp eq i64 %size, -1
  br i1 %all, label %drop, label %done
drop:
  call void @drop()
  br label %done
there:
  br i1 %some, label %keep, label %give
give:
  call void @give(ptr %old)
  br label %done
keep:
  %settled = icmp eq i64 %what, 2
  br i1 %settled, label %settle, label %resize
settle:
  call void @settle(ptr %old, i64 %size)
  ret ptr %old
resize:
  %moved = call ptr @resize(ptr %old, i64 %size)
  ret ptr %moved
done:
  ret ptr null
}}
"""

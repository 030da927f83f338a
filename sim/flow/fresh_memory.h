/// Where forked processes take their memory from. A page that a process shares with a copy of
/// itself costs a fault when either writes to it, and one that nobody has touched costs a fault,
/// too: 10 us and more on some virtual machines. A simulation touches ten thousand small ones.
/// glibc only: other allocators go on as they are. Private to sim/flow.
#pragma once

namespace orrery::sim {

/// From now on memory comes in huge pages.
void take_huge_pages();

/// Takes for good what is free between what is in use, so that memory comes from behind it, and not
/// from pages that copies made from now on share with this process.
void use_up_free_memory();

}  // namespace orrery::sim

// Which of a process's bytes a network card may compress: `tersewire nic`, the software card of
// INCEPTIONN. In libtersewire-nic.so, which a program is linked with, or which is loaded before it
// (LD_PRELOAD); the functions are C's.
#pragma once

#include <cstddef>

extern "C" {

// What this process sends over TCP out of [begin, begin + bytes) is floats, 32 bits each from
// `begin` on, until tersewire_nic_forget(begin). Sent means write, writev, send, sendto, sendmsg:
// their bytes are announced to the card of the network namespace, where there is one, and all
// others leave as they are. A connection has to have been made while the library was loaded.
//
// It is for the values that may be lossy: an exact sum of weights, or integers in the same memory,
// must not lie there while they are sent. Any thread; regions may overlap; never fails. Cost: a
// lock, and one more message to the card for each call that sends out of a region.
void tersewire_nic_floats(const void* begin, std::size_t bytes);

// Ends the latest region that began at `begin`.
void tersewire_nic_forget(const void* begin);

}

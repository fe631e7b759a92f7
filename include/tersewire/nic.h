// Which of a process's bytes a network card may compress: `tersewire nic`, the software card of
// INCEPTIONN. In libtersewire-nic.so: link the program with it, or preload it (LD_PRELOAD); the
// functions have C linkage.
#pragma once

#include <cstddef>

extern "C" {

// Declares that data sent by this process over TCP from [begin, begin + bytes) is floats, 32 bits
// each from `begin` on, until tersewire_nic_forget(begin). Sending means write, writev, send,
// sendto, sendmsg: their bytes are announced to the card of the network namespace, if there is one,
// and all others leave unchanged. The connection must have been made while the library was loaded.
//
// Use it for values that may be lossy: an exact sum of weights, or integers in the same memory,
// must not be there while they are sent. Any thread; regions may overlap; never fails. Cost: a
// lock, and one more message to the card for each call that sends out of a region.
void tersewire_nic_floats(const void* begin, std::size_t bytes);

// Ends the latest region that began at `begin`.
void tersewire_nic_forget(const void* begin);
}

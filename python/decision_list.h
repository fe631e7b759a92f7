// What codec auto decided, as Python has it: a list of dicts with the keys of a run's
// decisions.json.
#pragma once

#include <pybind11/pybind11.h>

#include "trainer/codec_chooser.h"

namespace tersewire::python {

pybind11::list decision_list(const trainer::CodecDecisions& decisions);

// The inverse. Throws kInvalidArgument for another list.
trainer::CodecDecisions decisions_in(const pybind11::list& list);

}  // namespace tersewire::python

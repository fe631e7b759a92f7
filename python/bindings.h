// The parts of the extension module, a file each.
#pragma once

#include <pybind11/pybind11.h>

namespace tersewire::python {

void bind_payloads(pybind11::module_& module);  // Payload, and what reads one
void bind_codecs(pybind11::module_& module);    // Codec, Encoder, policies
void bind_means(pybind11::module_& module);     // what tersewire.torch calls
void bind_dry_run(pybind11::module_& module);   // what tersewire.torch.dry_run() calls
void bind_probe(pybind11::module_& module);     // what tersewire.torch.probe() calls
void bind_messages(pybind11::module_& module);  // Frame, Message, pack, parse
void bind_hub(pybind11::module_& module);       // what tersewire.torch.HubGroup calls
void bind_data(pybind11::module_& module);      // the embedded images and text

}  // namespace tersewire::python

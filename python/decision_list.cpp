#include "python/decision_list.h"

#include <cstdint>
#include <string>

#include "tersewire/error.h"
#include "trainer/train_config.h"

namespace tersewire::python {
namespace {

namespace py = pybind11;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument,
              "these are no decisions on codecs: " + what +
                  "; pass what decisions() returned, or what a run's decisions.json holds");
}

py::object seen(double times) { return times > 0 ? py::object(py::float_(times)) : py::none(); }

double times_in(const py::dict& entry, const char* key) {
  return entry.contains(key) && py::isinstance<py::float_>(entry[key]) ? entry[key].cast<double>()
                                                                       : 0;
}

std::string text_in(const py::dict& entry, const char* key) {
  return entry.contains(key) && py::isinstance<py::str>(entry[key]) ? entry[key].cast<std::string>()
                                                                    : std::string();
}

}  // namespace

py::list decision_list(const trainer::CodecDecisions& decisions) {
  py::list list;
  for (const trainer::CodecDecision& each : decisions) {
    py::dict entry;
    entry["step"] = each.step;
    entry["codec"] = each.codec;
    entry["expected_speedup"] = seen(each.expected);
    entry["measured_speedup"] = seen(each.measured);
    entry["sentence"] = each.sentence;
    list.append(entry);
  }
  return list;
}

trainer::CodecDecisions decisions_in(const py::list& list) {
  constexpr auto kMost = static_cast<std::int64_t>(trainer::kMostSteps);
  trainer::CodecDecisions decisions;
  std::int64_t before = 0;
  for (const py::handle each : list) {
    if (!py::isinstance<py::dict>(each)) refuse("an entry is no dict");
    const auto entry = py::reinterpret_borrow<py::dict>(each);
    if (!entry.contains("step") || !py::isinstance<py::int_>(entry["step"])) {
      refuse("an entry has no step");
    }
    int overflow = 0;
    const std::int64_t step =
        PyLong_AsLongLongAndOverflow(py::object(entry["step"]).ptr(), &overflow);
    if (overflow != 0 || step <= before || step > kMost) refuse("its steps do not rise");
    before = step;
    if (text_in(entry, "codec").empty()) refuse("an entry has no codec");
    decisions.push_back({.step = static_cast<std::uint64_t>(step),
                         .codec = text_in(entry, "codec"),
                         .expected = times_in(entry, "expected_speedup"),
                         .measured = times_in(entry, "measured_speedup"),
                         .sentence = text_in(entry, "sentence")});
  }
  return decisions;
}

}  // namespace tersewire::python

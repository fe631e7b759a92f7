// A policy from what a dry run found: for each tensor the codec that sends least of those that keep
// little of it back.
#pragma once

#include <string>

namespace tersewire::apps {

// The policy's text, of rules by name, for what `train --dry` left in `path`. A codec will do for a
// tensor where its residual, after the last look, was at most `most_residual` times as large as the
// gradient; where none does, that with the smallest. Throws an Error that names the file and what
// is wrong with it.
std::string policy_from_dry_run(const std::string& path, double most_residual);

}  // namespace tersewire::apps

// What a report says first: which design is best for the job.
#pragma once

#include <string>
#include <vector>

#include "apps/report/report_designs.h"

namespace tersewire::apps {

struct RateVerdict {
  std::string rate;
  std::string times;  // "modelled" or "measured"
  std::string design;
  std::string gain;    // "37 times as fast as fp32"
  std::string detail;  // times and accuracies
};

struct Headline {
  std::string title;
  std::string detail;                 // one or two sentences
  std::vector<RateVerdict> verdicts;  // by rate; none where nothing can be compared
};

// The best design at a rate is the one whose runs come soonest to an accuracy at most
// `tolerance_points` percentage points below the baseline's, or, without a baseline, below the
// highest; runs count by their ends. Of one design alone it says what it saves over fp32.
Headline make_headline(const Designs& designs, double tolerance_points);

// The job that the runs do, in a few words each: "model", "lenet" and so on.
struct JobFact {
  std::string name;
  std::string value;
};
std::vector<JobFact> job_facts(const Designs& designs);

}  // namespace tersewire::apps

// A run's numbers for Prometheus.
#include "apps/run/watch/metrics_server.h"
#include "apps/run/watch/run_numbers.h"
#include "apps/run/watch/step_listener.h"

namespace tersewire::apps {
namespace {

class RunMetrics final : public StepListener {
 public:
  explicit RunMetrics(const std::string& address)
      : server_(serve_metrics(address, [this] { return numbers_.text(); })) {}

  void on_step(const trainer::StepReport& report) override { numbers_.set(report); }
  void on_observation(const trainer::Observation& observation) override {
    numbers_.set(observation);
  }

 private:
  RunNumbers numbers_;
  std::unique_ptr<MetricsServer> server_;
};

}  // namespace

std::unique_ptr<StepListener> make_metrics_server(const std::string& address) {
  return std::make_unique<RunMetrics>(address);
}

}  // namespace tersewire::apps

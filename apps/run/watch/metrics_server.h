// Numbers over HTTP, for Prometheus.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace tersewire::apps {

class MetricsServer {
 public:
  MetricsServer() = default;
  virtual ~MetricsServer() = default;
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
};

// Serves what `text` makes, in Prometheus' format, under /metrics for as long as it lives, and says
// on stderr where. `text` is called from a thread of its own. Throws WrongUsage for another address
// than PORT or ADDRESS:PORT, kFailedPrecondition where the port cannot be had, and kUnimplemented
// in builds without it.
std::unique_ptr<MetricsServer> serve_metrics(const std::string& address,
                                             std::function<std::string()> text);

}  // namespace tersewire::apps

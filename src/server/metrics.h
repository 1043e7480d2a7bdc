// Counters, gauges and histograms, and their text for Prometheus (exposition format 0.0.4). Written here because
// prometheus-cpp is not packaged for Ubuntu 22.04.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace redline::server {

/// Metrics by name and labels. Thread-safe.
class Metrics {
 public:
  enum class Kind : uint8_t { kCounter, kGauge, kHistogram };
  /// Declares a metric. Labels are passed as they are printed: `model_name="tales"`; see label().
  void declare(std::string name, Kind kind, std::string help, std::vector<double> buckets = {});
  void add(const std::string& name, const std::string& labels, double amount = 1);
  void set(const std::string& name, const std::string& labels, double value);
  void observe(const std::string& name, const std::string& labels, std::span<const double> values);
  void observe(const std::string& name, const std::string& labels, double value) {
    observe(name, labels, std::span(&value, 1));
  }
  std::string text() const;

  /// Returns name="value", with escapes.
  static std::string label(std::string_view name, std::string_view value);

 private:
  struct Series {
    double value = 0;              ///< value; for a histogram the sum
    std::vector<uint64_t> counts;  ///< counts of a histogram, per bucket and above the last
  };
  struct Family {
    Kind kind = Kind::kCounter;
    std::string help;
    std::vector<double> buckets;
    std::map<std::string, Series> series;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Family> families_;
};

}  // namespace redline::server

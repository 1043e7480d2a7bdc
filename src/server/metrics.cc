#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace redline::server {
namespace {

std::string in_braces(const std::string& labels) { return labels.empty() ? "" : "{" + labels + "}"; }
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : value > 0 ? "+Inf" : "NaN";
}

}  // namespace

void Metrics::declare(std::string name, Kind kind, std::string help, std::vector<double> buckets) {
  const std::lock_guard lock(mutex_);
  families_[std::move(name)] = {kind, std::move(help), std::move(buckets), {}};
}

void Metrics::add(const std::string& name, const std::string& labels, double amount) {
  const std::lock_guard lock(mutex_);
  families_.at(name).series[labels].value += amount;
}

void Metrics::set(const std::string& name, const std::string& labels, double value) {
  const std::lock_guard lock(mutex_);
  families_.at(name).series[labels].value = value;
}

void Metrics::observe(const std::string& name, const std::string& labels, std::span<const double> values) {
  const std::lock_guard lock(mutex_);
  Family& family = families_.at(name);
  Series& series = family.series[labels];
  series.counts.resize(family.buckets.size() + 1);
  for (const double value : values) {
    const auto bucket = std::lower_bound(family.buckets.begin(), family.buckets.end(), value) - family.buckets.begin();
    ++series.counts[static_cast<size_t>(bucket)];
    series.value += value;
  }
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [name, family] : families_) {
    const char* kind = family.kind == Kind::kCounter ? "counter" : family.kind == Kind::kGauge ? "gauge" : "histogram";
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, family.help, name, kind);
    for (const auto& [labels, series] : family.series) {
      if (family.kind != Kind::kHistogram) {
        text += fmt::format("{}{} {}\n", name, in_braces(labels), number(series.value));
        continue;
      }
      uint64_t count = 0;
      for (size_t i = 0; i < series.counts.size(); ++i) {
        count += series.counts[i];
        const std::string bound = i < family.buckets.size() ? number(family.buckets[i]) : "+Inf";
        text += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, labels.empty() ? "" : ",", bound, count);
      }
      text += fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, in_braces(labels), number(series.value), count);
    }
  }
  return text;
}

std::string Metrics::label(std::string_view name, std::string_view value) {
  std::string text = fmt::format("{}=\"", name);
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') text += "\\n";
    else text += c;
  }
  return text + "\"";
}

}  // namespace redline::server

#include "base/topology.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace redline {
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology* t) const { hwloc_topology_destroy(t); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

// Loads the topology of this machine, or the one that `synthetic` describes. Returns nullptr if hwloc cannot.
Topology load_topology(const char* synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  // Only packages, memories, caches and cores: enumerating devices takes most of the time.
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (synthetic && hwloc_topology_set_synthetic(raw, synthetic) != 0) return nullptr;
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

CpuOrder order_of(hwloc_topology* topology, const std::vector<int>& allowed) {
  auto may_use = [&](int cpu) {
    return allowed.empty() || std::find(allowed.begin(), allowed.end(), cpu) != allowed.end();
  };
  // Hardware threads by core; hwloc numbers cores so that adjacent ones share caches and memory.
  std::vector<std::vector<int>> cores;
  const int num_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  for (int i = 0; i < num_cores; ++i) {
    const hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    std::vector<int> threads;
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(core->cpuset, cpu))
      if (may_use(cpu)) threads.push_back(cpu);
    if (!threads.empty()) cores.push_back(std::move(threads));
  }
  CpuOrder order;
  order.cores = static_cast<int>(cores.size());
  for (size_t sibling = 0, before = SIZE_MAX; before != order.cpus.size(); ++sibling) {
    before = order.cpus.size();
    for (const std::vector<int>& threads : cores)
      if (sibling < threads.size()) order.cpus.push_back(threads[sibling]);
  }
  return order;
}

/// Returns the bytes of the largest cache of a type; 0 if the topology has no such cache.
int64_t largest_cache(hwloc_topology* topology, hwloc_obj_type_t type) {
  int64_t largest = 0;
  for (hwloc_obj_t cache = nullptr; (cache = hwloc_get_next_obj_by_type(topology, type, cache)) != nullptr;)
    largest = std::max(largest, static_cast<int64_t>(cache->attr->cache.size));
  return largest;
}

CacheSizes caches_of(hwloc_topology* topology) {
  return {largest_cache(topology, HWLOC_OBJ_L1CACHE), largest_cache(topology, HWLOC_OBJ_L2CACHE),
          largest_cache(topology, HWLOC_OBJ_L3CACHE)};
}

/// Returns the topology of this machine, read once; nullptr if hwloc cannot read it.
hwloc_topology* this_machine() {
  static const Topology topology = load_topology(nullptr);
  return topology.get();
}

CpuOrder read_order() {
  const std::vector<int> allowed = allowed_cpus();
  CpuOrder order;
  if (hwloc_topology* topology = this_machine()) order = order_of(topology, allowed);
  // A container may expose fewer processors than the mask allows, or none.
  if (order.cpus.size() != allowed.size()) order = {allowed, static_cast<int>(allowed.size())};
  return order;
}

}  // namespace

const CpuOrder& cpu_order() {
  static const CpuOrder order = read_order();
  return order;
}

Result<CpuOrder> synthetic_cpu_order(const std::string& description, const std::vector<int>& allowed) {
  const Topology topology = load_topology(description.c_str());
  if (!topology) return invalid_argument("\"{}\" describes no topology that hwloc understands", description);
  return order_of(topology.get(), allowed);
}

std::vector<std::pair<std::string, int64_t>> CacheSizes::named() const {
  std::vector<std::pair<std::string, int64_t>> caches = {{"L1d", l1d}, {"L2", l2}, {"L3", l3}};
  std::erase_if(caches, [](const auto& cache) { return cache.second == 0; });
  return caches;
}

const CacheSizes& cache_sizes() {
  static const CacheSizes sizes = this_machine() ? caches_of(this_machine()) : CacheSizes{};
  return sizes;
}

Result<CacheSizes> synthetic_cache_sizes(const std::string& description) {
  const Topology topology = load_topology(description.c_str());
  if (!topology) return invalid_argument("\"{}\" describes no topology that hwloc understands", description);
  return caches_of(topology.get());
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

void pin_to_cpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

Result<int> choose_threads(int64_t requested, int64_t setting) {
  constexpr int64_t kMaxThreads = 1024;
  const int64_t threads = requested != 0 ? requested : setting != 0 ? setting : static_cast<int64_t>(cpu_order().cores);
  if (threads < 1 || threads > kMaxThreads)
    return invalid_argument("threads {} is outside [1, {}]", threads, kMaxThreads);
  return static_cast<int>(threads);
}

}  // namespace redline

#include "kernels/emu/emulated_device.h"

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "base/aligned_buffer.h"

namespace redline::emu {
namespace {

bool loads(tiles::KernelId kernel) {
  switch (kernel) {
#define REDLINE_KERNEL(K) \
  case tiles::KernelId::k##K: return tiles::K::kLoads;
    REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
  }
  return true;
}

bool needs_shared(tiles::KernelId kernel) {
  switch (kernel) {
#define REDLINE_KERNEL(K) \
  case tiles::KernelId::k##K: return tiles::kNeedsShared<tiles::K>;
    REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
  }
  return true;
}

void init_ring(Block& block) {
  tiles::Warp warp(block, 0);
  tiles::Ring::init(warp);
}

class EmulatedDevice {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options) : options_(options) {
    table_ = tiles::table_of(this, options.machine.has_bulk_copies ? "emu/sm90a" : "emu/sm80");
    table_.model = "emulated GPU";
    table_.multiprocessors = options.multiprocessors;
    table_.has_warp_groups = options.machine.has_bulk_copies ? 1 : 0;
    if (options.has_library) table_.library = "emulated library";
    table_.persistent_blocks = options.persistent_blocks < 0 ? options.multiprocessors : options.persistent_blocks;
    table_.gives_up_at_once = 1;
    table_.persistent_obstacle = "the emulated device has no cooperative launches";
  }
  tiles::TileDevice* table() { return &table_; }
  void set(const MachineOptions& options) { options_.machine = options; }
  void set_memory(int64_t bytes) { options_.memory_bytes = bytes; }
  static EmulatedDevice& of(void* self) { return *static_cast<EmulatedDevice*>(self); }

  // The functions of the table.
  int32_t allocate(int64_t bytes, int32_t is_constant, void** memory) {
    if (options_.memory_bytes > 0 && bytes > options_.memory_bytes - used_)
      return finish(out_of_memory("the emulated device is full"));
    Result<AlignedBuffer> buffer = AlignedBuffer::make(std::max<int64_t>(bytes, 1));
    if (!buffer.ok()) return finish(buffer.status());
    *memory = buffer->data();
    memory_.add(*memory, bytes, is_constant != 0);
    used_ += buffer->size();
    buffers_[*memory] = std::move(buffer).value();
    return 0;
  }
  void release(void* memory) {
    memory_.remove(memory);
    const auto at = buffers_.find(memory);
    if (at == buffers_.end()) return;
    used_ -= at->second.size();
    buffers_.erase(at);
  }
  int32_t memory(int64_t* free, int64_t* total) {
    *total = options_.memory_bytes > 0 ? options_.memory_bytes : INT64_MAX;
    *free = *total - used_;
    return 0;
  }
  int32_t upload(void* to, const void* from, int64_t bytes) { return copy(to, from, bytes); }
  int32_t download(void* to, const void* from, int64_t bytes) { return copy(to, from, bytes); }
  /// Returns the next staging buffer. Copies from a buffer arrive as late as the interface allows: when the buffer is
  /// returned again, or at end_staging().
  int32_t stage(int64_t, void** memory, int64_t* bytes) {
    staging_now_ ^= 1;
    StagingBuffer& buffer = staging_[staging_now_];
    buffer.arrive();
    if (buffer.memory.size() == 0) {
      Result<AlignedBuffer> made = AlignedBuffer::make(options_.staging_bytes);
      if (!made.ok()) return finish(made.status());
      buffer.memory = std::move(made).value();
    }
    std::memset(buffer.memory.data(), 0xff, static_cast<size_t>(options_.staging_bytes));
    *memory = buffer.memory.data();
    *bytes = options_.staging_bytes;
    return 0;
  }
  int32_t upload_staged(void* to, const void* from, int64_t bytes) {
    StagingBuffer& buffer = staging_[staging_now_];
    const auto* const begin = static_cast<const uint8_t*>(buffer.memory.data());
    const auto* const at = static_cast<const uint8_t*>(from);
    if (begin == nullptr || at < begin || at + bytes > begin + options_.staging_bytes)
      return finish(internal("emulated device: a staged copy is not of the buffer that was given out last"));
    buffer.copies.push_back({to, from, bytes});
    return 0;
  }
  int32_t end_staging() {
    for (StagingBuffer& buffer : staging_) {
      buffer.arrive();
      buffer.memory = {};
    }
    return 0;
  }
  int32_t copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return 0;
  }
  int32_t clear(void* to, int64_t bytes) {
    if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
    return 0;
  }

  int32_t begin_capture() {
    if (captured_) return finish(internal("emulated device: a graph is being captured already"));
    captured_ = std::make_unique<Graph>();
    return 0;
  }
  int32_t end_capture(void** graph) {
    if (!captured_) return finish(internal("emulated device: no graph is being captured"));
    *graph = captured_.release();
    return 0;
  }
  int32_t launch_graph(void* graph) {
    for (const Launch& one : *static_cast<const Graph*>(graph))
      if (const int32_t failed =
              one.product.rows > 0 ? multiply(&one.product) : launch(&one.program, one.stage, one.kernel, one.blocks))
        return failed;
    return 0;
  }

  int32_t can_multiply(int32_t, int32_t, int32_t, tiles::ProductType) { return 1; }
  int32_t multiply(const tiles::MatrixProduct* product) {
    if (captured_) {
      captured_->push_back({.product = *product});
      return 0;
    }
    switch (product->type) {
      case tiles::ProductType::kBF16:
        multiply_numbers<uint16_t, float>(
            *product, [](uint16_t bits) { return __builtin_bit_cast(float, uint32_t{bits} << 16); });
        break;
      case tiles::ProductType::kE4M3:
        multiply_numbers<uint8_t, float>(*product, [](uint8_t bits) {
          const int exponent = bits >> 3 & 15, mantissa = bits & 7;
          const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                           : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
          return bits & 128 ? -size : size;
        });
        break;
      case tiles::ProductType::kI8:
        multiply_numbers<int8_t, int32_t>(*product, [](int8_t number) { return int32_t{number}; });
    }
    return 0;
  }

  /// Runs the blocks of a launch on the workers, in any order, because they are independent.
  int32_t launch(const tiles::ProgramTables* program, int32_t stage, tiles::KernelId kernel, int32_t blocks) {
    if (captured_) {
      captured_->push_back({*program, stage, kernel, blocks, {}});
      return 0;
    }
    tiles::StageTable table = program->stages[stage];
    table.kernel = kernel;
    const bool uses_ring = loads(kernel), uses_shared = needs_shared(kernel);
    const auto run = [&](int64_t begin, int64_t end) {
      std::unique_ptr<Machine> machine = take_machine();
      Status status;
      for (int64_t block = begin; block < end && status.ok(); ++block)
        status = machine->run({.blocks = 1,
                               .warps = uses_ring ? tiles::kBlockWarps : tiles::kConsumerWarps,
                               .shared_bytes = uses_shared ? shared_bytes() : 0,
                               .barriers = tiles::kNumBarriers,
                               .prepare = init_ring},
                              options_.machine, [&](Block& b, int w) {
                                tiles::Warp warp(b, w);
                                tiles::run_launch(table, stage, *program, static_cast<int>(block), warp);
                              });
      give_back(std::move(machine), std::move(status));
    };
    failure_ = {};
    if (options_.team && options_.machine.seed == 0) options_.team->parallel_for(blocks, 1, run);
    else run(0, blocks);
    return finish(failure_);
  }

  int32_t run_program(const tiles::ProgramTables* program, int32_t blocks) {
    if (options_.refuses_persistent) {
      finish(unsupported("the emulated device refuses a cooperative launch of {} blocks", blocks));
      return tiles::kNotLaunched;
    }
    std::unique_ptr<Machine> machine = take_machine();
    const Status status = machine->run({.blocks = blocks,
                                        .warps = tiles::kBlockWarps,
                                        .shared_bytes = shared_bytes(),
                                        .barriers = tiles::kNumBarriers,
                                        .prepare = init_ring},
                                       options_.machine, [&](Block& b, int w) {
                                         tiles::Warp warp(b, w);
                                         if (w == tiles::kConsumerWarps)
                                           tiles::load_persistent(*program, b.index, warp);
                                         else tiles::compute_persistent(*program, b.index, warp);
                                       });
    give_back(std::move(machine), status);
    return finish(status);
  }
  void release_graph(void* graph) { delete static_cast<Graph*>(graph); }
  int32_t synchronize(uint64_t) { return 0; }
  const char* last_error() { return error_.c_str(); }
  void close() { delete this; }

 private:
  struct Launch {
    tiles::ProgramTables program;
    int32_t stage;
    tiles::KernelId kernel;
    int32_t blocks;
    tiles::MatrixProduct product;  ///< if it has rows, the launch is this product of the library and not a kernel
  };
  using Graph = std::vector<Launch>;
  struct StagingBuffer {
    struct Copy {
      void* to;
      const void* from;
      int64_t bytes;
    };
    AlignedBuffer memory;
    std::vector<Copy> copies;
    void arrive() {
      for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
      copies.clear();
    }
  };

  template <class Stored, class Sum, class Number>
  static void multiply_numbers(const tiles::MatrixProduct& product, const Number& number) {
    const auto *x = static_cast<const Stored*>(product.x), *w = static_cast<const Stored*>(product.w);
    auto* y = static_cast<Sum*>(product.y);
    for (int64_t m = 0; m < product.rows; ++m)
      for (int64_t n = 0; n < product.cols; ++n) {
        Sum sum = 0;
        for (int64_t k = 0; k < product.k; ++k) sum += number(x[m * product.k + k]) * number(w[n * product.k + k]);
        y[m * product.cols + n] = sum;
      }
  }
  int shared_bytes() const {
    return tiles::shared_bytes_of(options_.machine.ring_stages > 0 ? options_.machine.ring_stages
                                                                   : tiles::kMaxRingStages);
  }
  int32_t finish(const Status& status) {
    if (status.ok()) return 0;
    error_ = status.message();
    return 1;
  }
  /// Returns a machine that no launch uses. Machines are reused, because they own stacks and shared memory.
  std::unique_ptr<Machine> take_machine() {
    const std::lock_guard lock(mutex_);
    if (machines_.empty()) return std::make_unique<Machine>(memory_);
    std::unique_ptr<Machine> machine = std::move(machines_.back());
    machines_.pop_back();
    return machine;
  }
  void give_back(std::unique_ptr<Machine> machine, Status status) {
    const std::lock_guard lock(mutex_);
    if (status.ok()) machines_.push_back(std::move(machine));
    else if (failure_.ok()) failure_ = std::move(status);
  }

  EmulatedDeviceOptions options_;
  tiles::TileDevice table_ = {};
  MemoryMap memory_;
  std::map<void*, AlignedBuffer> buffers_;
  int64_t used_ = 0;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Machine>> machines_;
  StagingBuffer staging_[2];
  size_t staging_now_ = 0;
  std::unique_ptr<Graph> captured_;  ///< the graph that is being captured; null: none
  Status failure_;
  std::string error_;
};

}  // namespace

tiles::TileDevice* open_emulated_device(const EmulatedDeviceOptions& options) {
  return (new EmulatedDevice(options))->table();
}

void set_memory_bytes(tiles::TileDevice& device, int64_t bytes) {
  static_cast<EmulatedDevice*>(device.self)->set_memory(bytes);
}

void set_machine_options(tiles::TileDevice& device, const MachineOptions& options) {
  static_cast<EmulatedDevice*>(device.self)->set(options);
}

}  // namespace redline::emu

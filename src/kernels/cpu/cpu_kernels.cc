// The instruction sets that the build has kernels for, and construction of the kernel table.
#include "kernels/cpu/cpu_kernels.h"

#include <algorithm>
#include <cstring>

#include "base/settings.h"
#include "base/text_distance.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/linear/linear_choice.h"
#include "kernels/cpu/quantize.h"

namespace redline {

#define REDLINE_ISA(isa, features)      \
  namespace isa_##isa {                 \
    void fill_table(CpuKernels& table); \
  }
#define REDLINE_ISA_LEFT_OUT(isa)
#include <isas.inc>  // of the build: one row per instruction set
#undef REDLINE_ISA_LEFT_OUT
#undef REDLINE_ISA

bool quantize_iq3_s(const QuantizeArgs& args);  // quantize_iq3.cc

namespace {

constexpr CpuIsa kIsas[] = {
#define REDLINE_ISA(isa, features) {#isa, features, isa_##isa::fill_table},
#define REDLINE_ISA_LEFT_OUT(isa)
#include <isas.inc>
#undef REDLINE_ISA_LEFT_OUT
#undef REDLINE_ISA
};
constexpr int kNumIsas = sizeof(kIsas) / sizeof(kIsas[0]);
/// Instruction sets that this build has no kernels for (the CMake option REDLINE_CPU_ISAS); "" ends the list.
constexpr std::string_view kLeftOut[] = {
#define REDLINE_ISA(isa, features)
#define REDLINE_ISA_LEFT_OUT(isa) #isa,
#include <isas.inc>
#undef REDLINE_ISA_LEFT_OUT
#undef REDLINE_ISA
    ""};

/// Returns the index of the highest supported instruction set up to the one called `name`; "" allows all.
Result<int> richest(std::string_view name) {
  std::vector<std::string_view> known, good;
  int last = 0;
  bool lacking = false;
  for (int i = 0; i < kNumIsas; ++i) {
    const bool supported = kIsas[i].supported();
    if (name == kIsas[i].name && supported) return i;
    if (name == kIsas[i].name) lacking = true;
    known.push_back(kIsas[i].name);
    if (!supported) continue;
    good.push_back(kIsas[i].name);
    last = i;
  }
  if (name.empty()) return last;
  const std::string list = fmt::format("{}", fmt::join(good, ", "));
  if (lacking) return invalid_argument("this machine lacks the instruction set \"{}\"; it has {}", name, list);
  if (std::find(std::begin(kLeftOut), std::end(kLeftOut), name) != std::end(kLeftOut))
    return invalid_argument(
        "this build has no kernels for the instruction set \"{}\"; it has those for {}. Build with -DREDLINE_CPU_ISAS= "
        "(all instruction sets) to add them",
        name, list);
  return invalid_argument("unknown instruction set \"{}\"; this machine has {}{}", name, list,
                          did_you_mean(name, known));
}

/// Code paths of other CPUs, which every base set contains as portable C++.
struct Emulation {
  std::string_view suffix;
  void (*apply)(CpuKernels& table);
};
constexpr Emulation kEmulations[] = {
    {"tiles",
     [](CpuKernels& table) {
       table.has_tile_unit = true;
       std::fill(std::begin(table.linear_isa), std::end(table.linear_isa), "");
       for (int t = 0; t < kNumDTypes; ++t) table.linear_i8[t] = table.linear_i8_tiles[t];
       for (int f = 0; f < kNumKvFormats; ++f)
         if (table.attention_with_tiles[f] != nullptr) table.attention[f] = table.attention_with_tiles[f];
     }},
    {"bf16_dot", [](CpuKernels& table) { table.has_fast_bf16_dot = true; }},
};

/// Overwrites the entries that `isa` has.
void fill(const CpuIsa& isa, CpuKernels& table) {
  isa.fill(table);
  // A search over a table that no vectors speed up: it is compiled once.
  if (&isa == kIsas) table.quantize[static_cast<size_t>(DType::kIQ3_S)] = quantize_iq3_s;
}

/// Adds the entries of `isa`, and what follows from them.
void overlay(const CpuIsa& isa, CpuKernels& table) {
  const CpuKernels before = table;
  fill(isa, table);
  for (size_t t = 0; t < kNumDTypes; ++t)
    if (table.linear[t] != before.linear[t] || table.linear_q8[t] != before.linear_q8[t] ||
        table.linear_tiles[t] != before.linear_tiles[t] || table.linear_i8[t] != before.linear_i8[t] ||
        table.has_tile_unit != before.has_tile_unit)
      table.linear_isa[t] = isa.name;
  if (!table.has_tile_unit)
    std::copy(std::begin(table.attention), std::end(table.attention), std::begin(table.attention_vectors));
}

struct TableInUse {
  Result<CpuKernels> table;
  std::string isa;
};
TableInUse make_table_in_use() {
  Result<Settings> settings = read_settings();
  if (!settings.ok()) return {settings.status(), ""};
  Result<CpuKernels> table = cpu_kernels_for(settings->cpu_isa).within("REDLINE_CPU_ISA");
  if (!table.ok()) return {std::move(table), ""};
  const std::string_view name = settings->cpu_isa, set = name.substr(0, name.find('+'));
  return {std::move(table), kIsas[richest(set).value()].name + std::string(name.substr(set.size()))};
}
const TableInUse& in_use() {
  static const TableInUse table = make_table_in_use();
  return table;
}

/// Every entry of the table by name and offset.
struct Entry {
  std::string name;
  size_t offset;
};
std::vector<Entry> entries() {
  std::vector<Entry> all;
#define REDLINE_ENTRY(declaration, name) all.push_back({#name, offsetof(CpuKernels, name)});
  REDLINE_CPU_KERNELS(REDLINE_ENTRY)
#undef REDLINE_ENTRY
  const auto by_type = [&](const char* name, size_t offset) {
    for (int i = 0; i < kNumDTypes; ++i)
      all.push_back(
          {fmt::format("{}.{}", name, dtype_info(static_cast<DType>(i)).name), offset + i * sizeof(void (*)())});
  };
  by_type("linear", offsetof(CpuKernels, linear));
  by_type("linear_q8", offsetof(CpuKernels, linear_q8));
  by_type("linear_tiles", offsetof(CpuKernels, linear_tiles));
  by_type("linear_i8", offsetof(CpuKernels, linear_i8));
  by_type("linear_i8_tiles", offsetof(CpuKernels, linear_i8_tiles));
  by_type("linear_requantized", offsetof(CpuKernels, linear_requantized));
  for (ActivationLayout form : {ActivationLayout::kI8Grouped, ActivationLayout::kBf16Tiled, ActivationLayout::kI8Tiled,
                                ActivationLayout::kI8TiledGroups})
    all.push_back({fmt::format("prepare_x.{}", activation_layout_name(form)),
                   offsetof(CpuKernels, prepare_x) + static_cast<size_t>(form) * sizeof(void (*)())});
  by_type("embedding", offsetof(CpuKernels, embedding));
  by_type("quantize", offsetof(CpuKernels, quantize));
  constexpr const char* kFormats[kNumKvFormats] = {"f32", "f16", "bf16"};
  for (int i = 0; i < kNumKvFormats; ++i) {
    all.push_back({fmt::format("kv_append.{}", kFormats[i]), offsetof(CpuKernels, kv_append) + i * sizeof(void (*)())});
    all.push_back({fmt::format("attention.{}", kFormats[i]), offsetof(CpuKernels, attention) + i * sizeof(void (*)())});
    if (static_cast<KvFormat>(i) == KvFormat::kF32) continue;
    all.push_back({fmt::format("attention_tiles.{}", kFormats[i]),
                   offsetof(CpuKernels, attention_tiles) + i * sizeof(void (*)())});
  }
  return all;
}
uintptr_t value_at(const CpuKernels& table, size_t offset) {
  uintptr_t value;
  std::memcpy(&value, reinterpret_cast<const char*>(&table) + offset, sizeof(value));
  return value;
}

}  // namespace

bool CpuIsa::supported() const {
  const std::string_view all = features;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find(' ', begin), all.size());
    if (!cpu_has(all.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

const CpuIsa* cpu_isas(int* count) {
  *count = kNumIsas;
  return kIsas;
}

Result<CpuKernels> cpu_kernels_for(std::string_view isa) {
  const size_t plus = isa.find('+');
  REDLINE_ASSIGN(const int last, richest(isa.substr(0, plus)));
  CpuKernels table;
  for (int i = 0; i <= last; ++i)
    if (kIsas[i].supported()) overlay(kIsas[i], table);
  if (plus == std::string_view::npos) return table;
  const std::string_view suffix = isa.substr(plus + 1);
  for (const Emulation& emulation : kEmulations) {
    if (emulation.suffix != suffix) continue;
    emulation.apply(table);
    return table;
  }
  return invalid_argument("unknown suffix \"+{}\" of an instruction set; there are +tiles and +bf16_dot", suffix);
}

Result<const CpuKernels*> cpu_kernels() {
  const Result<CpuKernels>& table = in_use().table;
  if (!table.ok()) return table.status();
  return &table.value();
}

std::string_view cpu_isa_in_use() { return in_use().isa; }

std::vector<KernelOrigin> kernel_origins(const CpuKernels& table) {
  std::vector<KernelOrigin> origins;
  for (Entry& entry : entries()) origins.push_back({std::move(entry.name), "none"});
  const std::vector<Entry> places = entries();
  for (const CpuIsa& isa : kIsas) {
    if (!isa.supported()) continue;  // filling a table may already use the set's instructions
    CpuKernels own;
    fill(isa, own);
    for (size_t i = 0; i < places.size(); ++i) {
      const uintptr_t kernel = value_at(table, places[i].offset);
      if (kernel != 0 && kernel == value_at(own, places[i].offset)) origins[i].isa = isa.name;
    }
  }
  return origins;
}

}  // namespace redline

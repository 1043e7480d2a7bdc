// AMX state of a worker thread. The process has requested permission from the kernel once (cpu_kernels.cc).
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

struct TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

void worker_begin() {
  const TileConfig config;
  // _tile_loadconfig is not used: GCC 12 assumes that it reads only 8 bytes and drops the other stores.
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}
void worker_end() { asm volatile("tilerelease" : : : "memory"); }

void amx_tile_product(const TileProductArgs& args) {
  AmxTiles unit;
  tile_product(unit, args);
}

}  // namespace

void fill_tiles(CpuKernels& table) {
  table.has_tile_unit = true;
  table.worker_begin = worker_begin;
  table.worker_end = worker_end;
  table.tile_product = amx_tile_product;
}

}  // namespace redline::REDLINE_ISA_NS

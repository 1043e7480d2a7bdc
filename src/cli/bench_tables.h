// Human-readable output of `redline bench`.
#pragma once

#include "cli/terminal.h"
#include "lab/bench/image_bench.h"
#include "lab/bench/kernel_bench.h"
#include "lab/bench/network_bench.h"
#include "lab/bench/text_report.h"

namespace redline::cli {

void print_text_bench(const lab::BenchReport& report, Terminal& terminal);
/// `was_asked_to_check`: without --no-check.
void print_image_bench(const lab::ImageBenchReport& report, bool was_asked_to_check, Terminal& terminal);
void print_network_bench(const lab::NetworkBenchReport& report, Terminal& terminal);
void print_kernel_bench(const lab::KernelBenchReport& report, Terminal& terminal);
/// `--kernel help`.
void print_kernel_kinds(Terminal& terminal);

}  // namespace redline::cli

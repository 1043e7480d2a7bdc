// The adapters of a whole pipeline: its denoiser's and its text encoders', the same ones in all of them.
#pragma once

#include "diffusion/adapters.h"

namespace redline {

class PipelineAdapters {
 public:
  /// `component` of model_index.json, "" the denoiser; files may also call it `also`. `bank` outlives this.
  void add(std::string component, AdapterBank& bank, std::string also = "") {
    banks_.push_back({std::move(component), std::move(also), &bank});
  }
  /// Each network's share of the file under `name`, in all networks or in none.
  /// As AdapterBank::load; invalid_argument also: a text encoder that the pipeline does not have.
  Status load(const std::string& name, const AdapterFile& file, bool plain);
  /// As AdapterBank::set, in all networks or in none.
  Status set(std::span<const std::pair<std::string, double>> adapters);

 private:
  struct Bank {
    std::string component, also;
    AdapterBank* bank;
  };
  std::vector<Bank> banks_;
};

}  // namespace redline

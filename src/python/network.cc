// The Python bindings of single networks of image pipelines, which take tensors in the caller's memory.
#include "python/options.h"

namespace redline::python {
namespace {

struct Network : Handle<redline_network, redline_network_release> {};

/// An input tensor: name, dtype, shape and address.
using Tensor = std::tuple<Text, Text, std::vector<int64_t>, uintptr_t>;
/// An output tensor: name, address and number of floats.
using Output = std::tuple<Text, uintptr_t, size_t>;
/// The factors of an adapter for one module: adapter, module, down, up, scale.
using Pair = std::tuple<Text, Text, Tensor, Tensor, double>;

/// Converts an address to a pointer. Python's libraries give addresses as integers.
template <class T>
T* pointer_of(uintptr_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

redline_tensor c_tensor(const Tensor& tensor) {
  const auto& [name, dtype, shape, address] = tensor;
  return {name.data, dtype.data, shape.data(), shape.size(), pointer_of<const void>(address)};
}

std::vector<redline_tensor> c_tensors(const std::vector<Tensor>& tensors) {
  std::vector<redline_tensor> found;
  found.reserve(tensors.size());
  for (const Tensor& tensor : tensors) found.push_back(c_tensor(tensor));
  return found;
}

Network open_network(Text class_name, Text config, const std::vector<Tensor>& tensors, const NetworkOptions& options) {
  const std::vector<redline_tensor> given = c_tensors(tensors);
  Network network;
  call([&](redline_error** error) {
    return redline_network_open(class_name.data, config.data, given.data(), given.size(), &options.value, network.out(),
                                error);
  });
  return network;
}

void run(const Network& self, const std::vector<Tensor>& inputs, const std::vector<Output>& outputs,
         const NetworkStep* step) {
  const std::vector<redline_tensor> given = c_tensors(inputs);
  std::vector<redline_network_output> wanted;
  wanted.reserve(outputs.size());
  for (const auto& [name, address, count] : outputs) wanted.push_back({name.data, pointer_of<float>(address), count});
  call([&](redline_error** error) {
    return redline_network_run(self.get(), given.data(), given.size(), wanted.data(), wanted.size(),
                               step == nullptr ? nullptr : &step->value, error);
  });
}

void set_adapters(const Network& self, const std::vector<Pair>& pairs) {
  std::vector<redline_adapter_pair> given;
  given.reserve(pairs.size());
  for (const auto& [adapter, module, down, up, scale] : pairs) {
    given.push_back({adapter.data, module.data, c_tensor(down), c_tensor(up), scale});
  }
  call([&](redline_error** error) {
    return redline_network_set_adapters(self.get(), given.data(), given.size(), error);
  });
}

void set_cache(const Network& self, const OptionalText& rule, double quality, int64_t steps_budget) {
  call([&](redline_error** error) {
    return redline_network_set_cache(self.get(), c_str(rule), quality, steps_budget, error);
  });
}

}  // namespace

void add_networks(nb::module_& m) {
  nb::class_<Network>(m, "Network")
      .def("describe",
           [](const Network& self) {
             return text_of([&](char** json, size_t*, redline_error** error) {
               return redline_network_describe(self.get(), json, error);
             });
           })
      .def("run", run, nb::arg("inputs"), nb::arg("outputs"), nb::arg("step").none())
      .def("set_adapters", set_adapters, nb::arg("pairs"))
      .def("set_cache", set_cache, nb::arg("rule").none(), nb::arg("quality"), nb::arg("steps_budget"));
  m.def("open_network", open_network, nb::arg("class_name"), nb::arg("config"), nb::arg("tensors"), nb::arg("options"));
}

}  // namespace redline::python

// The Python bindings of image pipelines.
#include <algorithm>

#include "python/options.h"

namespace redline::python {
namespace {

struct ImageResult : Handle<redline_image_result, redline_image_result_release> {};
struct PromptEmbeds : Handle<redline_prompt_embeds, redline_prompt_embeds_release> {};

/// A completed step. It can be read within its callback only.
struct ImageProgress {
  const redline_image_progress* step;  ///< step of the C interface; null after the callback
  const redline_image_progress& get() const {
    if (step == nullptr)
      raise(REDLINE_INVALID_ARGUMENT, "a StepProgress has latents and previews during its callback only");
    return *step;
  }
};

nb::object progress_latents(nb::handle_t<ImageProgress> self) {
  const redline_float_array& array = nb::cast<const ImageProgress&>(self).get().latents;
  size_t count = 1;
  for (size_t axis = 0; axis < array.num_axes; ++axis) count *= static_cast<size_t>(array.shape[axis]);
  // The latents are copied, because the pipeline goes on in this memory.
  auto copy = std::make_unique<float[]>(count);
  std::copy_n(array.data, count, copy.get());
  const float* const data = copy.get();
  const nb::capsule owner(copy.release(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return view({data, array.shape, array.num_axes}, owner);
}

Pixels preview(const ImageProgress& self, int64_t index, int64_t max_side) {
  const redline_image_progress& step = self.get();
  uint8_t* rgb = nullptr;
  int64_t width = 0, height = 0;
  call([&](redline_error** error) {
    return redline_image_preview(&step, index, max_side, &rgb, &width, &height, error);
  });
  const nb::capsule owner(rgb, [](void* p) noexcept { redline_free(p); });
  return Pixels(rgb, {static_cast<size_t>(height), static_cast<size_t>(width), 3}, owner);
}

/// The callbacks of a request: the check for signals, and the caller's function after each step.
struct RequestCheck : StepCheck {
  nb::object on_step;

  static int32_t step(const redline_image_progress* progress, void* data) {
    auto& self = *static_cast<RequestCheck*>(data);
    return self.run([&] {
      nb::object argument = nb::cast(ImageProgress{progress});
      auto& held = nb::cast<ImageProgress&>(argument);
      struct End {
        ImageProgress& held;
        ~End() { held.step = nullptr; }
      } const end{held};
      return !self.on_step(argument).is(nb::bool_(false));
    });
  }
  static int32_t wait(void* data) {
    return static_cast<RequestCheck*>(data)->run([] { return true; });
  }
};

ImageResult generate(const ImagePipeline& self, const ImageRequest& request, nb::object on_step) {
  RequestCheck check;
  check.on_step = std::move(on_step);
  redline_image_request given = request.value;
  given.on_step = RequestCheck::step;
  given.on_wait = RequestCheck::wait;
  given.user_data = &check;
  ImageResult result;
  check.call([&](redline_error** error) { return redline_image_generate(self.get(), &given, result.out(), error); });
  return result;
}

Pixels result_image(nb::handle_t<ImageResult> self, size_t index) {
  const redline_image image = redline_image_result_image(nb::cast<const ImageResult&>(self).get(), index);
  return Pixels(const_cast<uint8_t*>(image.rgb),
                {static_cast<size_t>(image.height), static_cast<size_t>(image.width), 3}, self);
}

/// Returns a view of an array of `self`, or None if it has none.
template <class T, class F>
nb::object optional_view(nb::handle_t<T> self, const F& array_of) {
  const redline_float_array array = array_of(nb::cast<const T&>(self).get());
  if (array.num_axes == 0) return nb::none();
  return view(array, self);
}

PromptEmbeds encode_prompts(const ImagePipeline& self, const std::vector<Text>& prompts, int64_t max_sequence_length) {
  std::vector<const char*> texts;
  texts.reserve(prompts.size());
  for (const Text prompt : prompts) texts.push_back(prompt.data);
  PromptEmbeds embeds;
  call([&](redline_error** error) {
    return redline_image_encode_prompts(self.get(), texts.data(), texts.size(), max_sequence_length, embeds.out(),
                                        error);
  });
  return embeds;
}

ImageResult decode(const ImagePipeline& self, const nb::ndarray<const float, nb::c_contig, nb::device::cpu>& latents) {
  const std::vector<int64_t> shape(latents.shape_ptr(), latents.shape_ptr() + latents.ndim());
  const redline_float_array array = {latents.data(), shape.data(), shape.size()};
  ImageResult result;
  call([&](redline_error** error) { return redline_image_decode(self.get(), &array, result.out(), error); });
  return result;
}

}  // namespace

void add_images(nb::module_& m, nb::class_<ImagePipeline>& pipeline) {
  nb::class_<ImageProgress>(m, "ImageProgress")
      .def_prop_ro("step", [](const ImageProgress& p) { return p.get().step; })
      .def_prop_ro("steps", [](const ImageProgress& p) { return p.get().steps; })
      .def_prop_ro("step_ms", [](const ImageProgress& p) { return p.get().step_ms; })
      .def_prop_ro("computed", [](const ImageProgress& p) { return p.get().computed; })
      .def_prop_ro("sigma", [](const ImageProgress& p) { return p.get().sigma; })
      .def_prop_ro("next_sigma", [](const ImageProgress& p) { return p.get().next_sigma; })
      .def_prop_ro("latents", progress_latents, nb::for_getter(nb::sig("def latents(self) -> " REDLINE_FLOATS)))
      .def("preview", preview, nb::sig("def preview(self, index: int, max_side: int, /) -> " REDLINE_PIXELS));

  nb::class_<ImageResult>(m, "ImageResult")
      .def("__len__", [](const ImageResult& self) { return redline_image_result_count(self.get()); })
      .def("image", result_image, nb::sig("def image(self, index: int, /) -> " REDLINE_PIXELS))
      .def_prop_ro(
          "latents", [](nb::handle_t<ImageResult> self) { return optional_view(self, redline_image_result_latents); },
          nb::for_getter(nb::sig("def latents(self) -> " REDLINE_FLOATS " | None")))
      .def_prop_ro("seed", [](const ImageResult& self) { return redline_image_result_seed(self.get()); })
      .def("describe", [](const ImageResult& self) {
        return text_of([&](char** json, size_t*, redline_error** error) {
          return redline_image_result_describe(self.get(), json, error);
        });
      });

  nb::class_<PromptEmbeds>(m, "PromptEmbeds")
      .def_prop_ro(
          "text",
          [](nb::handle_t<PromptEmbeds> self) {
            return view(redline_prompt_embeds_text(nb::cast<const PromptEmbeds&>(self).get()), self);
          },
          nb::for_getter(nb::sig("def text(self) -> " REDLINE_FLOATS)))
      .def_prop_ro(
          "pooled", [](nb::handle_t<PromptEmbeds> self) { return optional_view(self, redline_prompt_embeds_pooled); },
          nb::for_getter(nb::sig("def pooled(self) -> " REDLINE_FLOATS " | None")))
      .def("describe", [](const PromptEmbeds& self) {
        return text_of([&](char** json, size_t*, redline_error** error) {
          return redline_prompt_embeds_describe(self.get(), json, error);
        });
      });

  m.def(
      "open_image_pipeline",
      [](Text path, const PipelineOptions& options) {
        ImagePipeline opened;
        call([&](redline_error** error) {
          return redline_image_pipeline_open(path.data, &options.value, opened.out(), error);
        });
        return opened;
      },
      nb::arg("path"), nb::arg("options"));
  pipeline
      .def("describe",
           [](const ImagePipeline& self) {
             return text_of([&](char** json, size_t*, redline_error** error) {
               return redline_image_pipeline_describe(self.get(), json, error);
             });
           })
      .def(
          "load_adapter",
          [](const ImagePipeline& self, Text name, Text path) {
            call([&](redline_error** error) {
              return redline_image_pipeline_load_adapter(self.get(), name.data, path.data, error);
            });
          },
          nb::arg("name"), nb::arg("path"))
      .def(
          "set_adapters",
          [](const ImagePipeline& self, const std::vector<std::tuple<Text, double>>& adapters) {
            std::vector<redline_adapter_weight> weights;
            weights.reserve(adapters.size());
            for (const auto& [name, weight] : adapters) weights.push_back({name.data, weight});
            call([&](redline_error** error) {
              return redline_image_pipeline_set_adapters(self.get(), weights.data(), weights.size(), error);
            });
          },
          nb::arg("adapters"))
      .def("encode_prompts", encode_prompts, nb::arg("prompts"), nb::arg("max_sequence_length"))
      .def("decode", decode, nb::sig("def decode(self, latents: " REDLINE_FLOATS ", /) -> ImageResult"))
      .def("generate", generate,
           nb::sig("def generate(self, request: ImageRequest, on_step: collections.abc.Callable[[ImageProgress], "
                   "object], /) -> ImageResult"));
  m.def(
      "save_png",
      [](Text path, const nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>& pixels) {
        const redline_image image = {static_cast<int64_t>(pixels.shape(1)), static_cast<int64_t>(pixels.shape(0)),
                                     pixels.data()};
        call([&](redline_error** error) { return redline_save_png(path.data, &image, error); });
      },
      nb::sig("def save_png(path: bytes, pixels: " REDLINE_PIXELS ", /) -> None"));
}

}  // namespace redline::python

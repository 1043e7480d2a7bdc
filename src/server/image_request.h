// What the APIs for images have in common: the fields of a request, and answers that wait for a prediction.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/endpoint.h"
#include "server/predictions.h"

namespace redline::server {

/// The `input` of a prediction.
const Schema& image_input_schema();

/// How a mask marks the part to draw.
enum class MaskForm : uint8_t {
  kWhite,        ///< it is white there
  kTransparent,  ///< OpenAI's: it, or without a mask the image, is transparent there; an opaque mask is white there
};

/// The error of a request with more than one image in `field`.
ApiError several_images(const char* field);
/// A checked `input` for a model. Files of a form take the place of `image` and `mask`.
Outcome<ImageJob> image_job(const Call& call, const ImageModel& model, Json input, MaskForm masks = MaskForm::kWhite);

std::string_view image_format_name(ImageFormat format);  ///< "png", "jpeg" or "webp"
std::string image_content_type(ImageFormat format);      ///< "image/png"
/// "data:image/png;base64,..."
std::string data_url(ImageFormat format, std::string_view bytes);

/// An answer about a prediction; the client's end cancels the prediction if `owns_it`.
class PredictionAnswer : public Answer {
 public:
  PredictionAnswer(std::shared_ptr<Prediction> prediction, bool owns_it);
  ~PredictionAnswer() override;
  void on_ready(std::function<void()> wake) final;
  std::string_view ping() const final { return ": ping\n\n"; }

 protected:
  Prediction& prediction() const { return *prediction_; }

 private:
  const std::shared_ptr<Prediction> prediction_;
  const bool owns_it_;
  std::optional<uint64_t> listener_;
};

}  // namespace redline::server

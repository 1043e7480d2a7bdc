// Parts shared by the APIs for images: the fields of a request, and answers that wait for a prediction.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/endpoint.h"
#include "server/predictions.h"

namespace redline::server {

/// Returns the schema of a prediction's `input`.
const Schema& image_input_schema();

/// How a mask marks the area to draw.
enum class MaskForm : uint8_t {
  kWhite,  ///< the area is white
  /// OpenAI's: the area is transparent in the mask, or without a mask in the image. An opaque mask is white there.
  kTransparent,
};

/// Returns the error of a request with more than one image in `field`.
ApiError several_images(const char* field);
/// Converts a checked `input` to a job for a model. Files of a form replace `image` and `mask`.
Outcome<ImageJob> image_job(const Call& call, const ImageModel& model, Json input, MaskForm masks = MaskForm::kWhite);

std::string_view image_format_name(ImageFormat format);  ///< returns "png", "jpeg" or "webp"
std::string image_content_type(ImageFormat format);      ///< returns "image/png"
/// Returns "data:image/png;base64,...".
std::string data_url(ImageFormat format, std::string_view bytes);

/// An answer about a prediction. If `owns_it`, the prediction is cancelled when the client disconnects.
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

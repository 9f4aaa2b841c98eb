// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/grad/tuning/bucket_tuning.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/train/step_feature.h"

namespace trireme {

/// Implements comm.tune_buckets and comm.buckets_file: tries out the size, order and algorithm of
/// buckets during training, and stores the result in the file.
class TRIREME_API TuneBuckets final : public StepFeature {
 public:
  /// Returns null unless enabled. Every rank must call it; rank 0 reads the file. Throws on all
  /// ranks: UsageError if the file belongs to another run and tuning is off, Corrupt if it is not a
  /// valid file.
  static std::unique_ptr<TuneBuckets> make(const Config& config, Group group,
                                           const NamedTensors& parameters);

  const std::shared_ptr<BucketTuning>& buckets() const { return buckets_; }
  /// "buckets as tuned: …", "tuning buckets".
  std::string describe(int64_t /*step*/) const override { return text_; }
  /// When tuning ends, rank 0 writes the file; returns the result once.
  std::string news() override;

 private:
  TuneBuckets() = default;
  std::shared_ptr<BucketTuning> buckets_;
  std::string text_, file_, of_;
  int rank_ = 0;
  bool reported_ = false;
};

/// "4.0 MiB buckets in order of arrival, all_reduce".
TRIREME_API std::string describe(const BucketSetting& setting);

/// The contents of the file: JSON, {"magic": "trireme.buckets", "version": 1, "of", "bucket_bytes",
/// "order", "algorithm", "ms_before", "ms_after"}; `of` identifies the run.
struct BucketsFile {
  std::string of;
  BucketSetting setting;
  double ms_before = 0, ms_after = 0;  // per step; 0: the initial setting was the best
};
TRIREME_API std::string to_text(const BucketsFile& file);
/// Parses the file. Throws Corrupt, naming `where`, if it is invalid.
TRIREME_API BucketsFile buckets_of_text(std::string_view text, const std::string& where);

}  // namespace trireme

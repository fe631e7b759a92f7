#include "trainer/files/dry_json.h"

#include <utility>

namespace tersewire::trainer {
namespace {

using Json = nlohmann::json;

Json row_json(const DryRunRow& row) {
  return {{"codec", row.codec},
          {"looks", row.looks},
          {"bits_per_value", row.bits},
          {"error", row.error},
          {"residual", row.residual},
          {"encode_seconds_per_value", row.encode_seconds},
          {"decode_seconds_per_value", row.decode_seconds}};
}

}  // namespace

Json dry_json(const DryRunFindings& found, const LinkSpeed& link) {
  Json json{{"rate_bits_per_second", link.bits_per_second},
            {"latency_seconds", link.latency_seconds},
            {"share_of_time", found.share},
            {"codecs", Json::array()},
            {"tensors", Json::array()}};
  for (const DryRunRow& row : found.totals) json["codecs"].push_back(row_json(row));
  for (const DryRunRow& row : found.rows) {
    Json tensor{{"tensor", found.tensors[row.tensor].name},
                {"values", found.tensors[row.tensor].elems()},
                {"used", row.used}};
    tensor.update(row_json(row));
    json["tensors"].push_back(std::move(tensor));
  }
  return json;
}

}  // namespace tersewire::trainer

// Arguments that several commands take alike.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tersewire/codec.h"

namespace CLI {
class App;
}

namespace tersewire::apps {

inline constexpr std::size_t kMaxThreads = 256;

// --exchange TEXT, --servers N|colocated, --backup-workers N, --local-steps K, --raw-from-all,
// --part-values N|whole and --bucket-bytes N, as Job takes them.
void add_exchange_options(CLI::App& command, std::string& exchange, std::optional<int>& servers,
                          int& backup_workers, int& local_steps, bool& raw_from_all,
                          std::size_t& part_values, std::optional<std::size_t>& bucket_bytes);

// --servers N|colocated alone, as Job takes it.
void add_servers_option(CLI::App& command, std::optional<int>& servers);

// --part-values alone, of what the option cuts ("tensors", "a tensor").
void add_part_values_option(CLI::App& command, std::size_t& part_values, std::string_view what,
                            std::string_view one);

// How many values a part has: in JSON a number, or "whole".
nlohmann::json part_values_json(std::size_t part_values);

// Bits per second of a rate as lab/netlab takes them: 10mbit, 1gbit, 2.5gbit. Throws WrongUsage.
double rate_argument(const std::string& text);

// The codec that an argument names. Throws WrongUsage with the library's sentence.
std::shared_ptr<const Codec> codec_argument(const std::string& text);

}  // namespace tersewire::apps

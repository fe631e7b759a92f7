// Owners of OpenSSL's objects, as std::unique_ptr<X509, Free<X509_free>>.
#pragma once

namespace tersewire {

template <auto free>
struct Free {
  void operator()(auto* object) const { free(object); }
};

}  // namespace tersewire

// Calls of kernels that are recorded once and repeated in one call.

#pragma once

#include <tuple>
#include <utility>

namespace {

// An argument: a number, or the address of what a pointer points to.
union Argument {
    int64_t number;
    double real;
    const void* pointer;
};

template <class A>
inline A argument(const Argument& a) {
    if constexpr (std::is_pointer_v<A>)
        return (A) const_cast<void*>(a.pointer);
    else if constexpr (std::is_floating_point_v<A>)
        return a.real;
    else
        return (A)a.number;
}

template <class... A, size_t... I>
inline int call_with(int (*kernel)(A...), const Argument* arguments, std::index_sequence<I...>) {
    return kernel(argument<A>(arguments[I])...);
}

// Calls a kernel with arguments from an array.
template <class... A>
inline int call_with(int (*kernel)(A...), const Argument* arguments) {
    return call_with(kernel, arguments, std::index_sequence_for<A...>());
}

struct Call {
    int (*kernel)(const Argument*);
    const Argument* arguments;
};

}  // namespace

// Makes the calls one after the other, until one returns something else than 0, which is returned.
extern "C" int replay(const Call* calls, long count) {
    for (long i = 0; i < count; ++i)
        if (const int failed = calls[i].kernel(calls[i].arguments)) return failed;
    return 0;
}

// A kernel as `replay` calls it.
#define REPLAYED(KERNEL)                                                                                               \
    extern "C" int replayed_##KERNEL(const Argument* arguments) { return call_with(KERNEL, arguments); }

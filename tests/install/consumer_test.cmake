# Installs a build into a prefix of its own, then configures, builds and runs tests/install/consumer
# against nothing but that prefix.
#
# usage: cmake -DBUILD_DIR=... -DSOURCE_DIR=... -DCOMPILER=... [-DCONFIG=Release] -P consumer_test.cmake
#   BUILD_DIR   a finished build of tersewire
#   SOURCE_DIR  tersewire's own folder
#   COMPILER    the C++ compiler that made the build
#   CONFIG      the configuration to install, and to build the consumer in
# Leaves the prefix in BUILD_DIR/consumer_test/prefix, for tests that need an installed tersewire.
cmake_minimum_required(VERSION 3.22)

foreach(name BUILD_DIR SOURCE_DIR COMPILER)
  if(NOT DEFINED ${name} OR "${${name}}" STREQUAL "")
    message(FATAL_ERROR "say -D${name}=...")
  endif()
endforeach()
if(NOT CONFIG)
  set(CONFIG Release)
endif()

function(run_step what)
  message(STATUS "${what}")
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status STREQUAL "0")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${what}: failed with ${status}\n  ${command}")
  endif()
endfunction()

# Nothing of an earlier run may help this one.
set(work ${BUILD_DIR}/consumer_test)
file(REMOVE_RECURSE ${work})
set(prefix ${work}/prefix)

run_step("install into ${prefix}"
  ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix} --config ${CONFIG})
if(NOT EXISTS ${prefix}/include/tersewire/tersewire.h)
  message(FATAL_ERROR "install: ${prefix} holds no include/tersewire/tersewire.h")
endif()

run_step("configure the consumer" ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/consumer -B ${work}/build
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=${CONFIG})
# What was found must be what was installed, not another tersewire of this machine.
load_cache(${work}/build READ_WITH_PREFIX found_ tersewire_DIR)
cmake_path(IS_PREFIX prefix "${found_tersewire_DIR}" NORMALIZE inside)
if(NOT inside)
  message(FATAL_ERROR "the consumer found tersewire in ${found_tersewire_DIR}, not in ${prefix}")
endif()

run_step("build the consumer" ${CMAKE_COMMAND} --build ${work}/build --config ${CONFIG})
find_program(consumer NAMES consumer PATHS ${work}/build ${work}/build/${CONFIG}
  NO_DEFAULT_PATH REQUIRED)
run_step("run the consumer" ${consumer})

# The installed program finds what it loads.
if(EXISTS ${prefix}/bin/tersewire)
  if(TRAINER)
    set(call train --quiet --steps 1 --model mlp --workers 1 --out ${work}/run)
  else()
    set(call codecs)
  endif()
  run_step("run the installed program" ${prefix}/bin/tersewire ${call})
endif()

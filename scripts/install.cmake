# The contents of `cmake --install` and of the packages of CPack: bin/nearmetal, and in
# lib/nearmetal the modules with the libraries that a plain node lacks. Relocatable: each finds the
# others by $ORIGIN.

set(modules)
foreach(module nearmetal_cpu nearmetal_cuda nearmetal_micro nearmetal_mpi nearmetal_nccl)
  if(TARGET ${module})
    list(APPEND modules ${module})
  endif()
endforeach()
# CMake would fill the room for these paths in the build folder with colons: empty elements, which are
# the current folder. So the room is a folder that only root could make, before those of libraries that
# are not the system's, and the installed files are changed below.
set_target_properties(nearmetal ${modules} PROPERTIES
  BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH /nonexistent/lib/nearmetal
  INSTALL_RPATH_USE_LINK_PATH ON)
# DT_RPATH, which serves the libraries of oneDNN and hwloc, too; DT_RUNPATH does not.
foreach(target nearmetal nearmetal_cpu)
  if(TARGET ${target})
    target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  endif()
endforeach()

# The node's own: the C and C++ run-time libraries, the driver, and unless asked for those of CUDA.
set(from_node "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s|cuda|nvidia-ml|mpi)[.]so" "^libstdc[+][+]")
if(NOT NEARMETAL_PACK_CUDA)
  list(APPEND from_node "^lib(cudnn|cublas|cublasLt|nvrtc|nccl)[.]so")
endif()
install(TARGETS nearmetal ${modules}
  RUNTIME_DEPENDENCIES PRE_EXCLUDE_REGEXES ${from_node}
  RUNTIME DESTINATION bin
  LIBRARY DESTINATION lib/nearmetal)
set(prefix "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}")
install(CODE "file(RPATH_SET FILE \"${prefix}/bin/nearmetal\" NEW_RPATH \"\\\$ORIGIN/../lib/nearmetal\")")
foreach(module ${modules})
  install(CODE "file(RPATH_SET FILE \"${prefix}/lib/nearmetal/$<TARGET_FILE_NAME:${module}>\"
    NEW_RPATH \"\\\$ORIGIN\")")
endforeach()
# Debian's Google Benchmark takes one symbol in the version of GCC 12, std::condition_variable::wait,
# which GCC 11 has in an older one that does the same.
install(CODE "
  find_program(python python3)
  file(GLOB libraries \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/nearmetal/libbenchmark.so*\")
  foreach(library \${libraries})
    if(NOT python)
      message(WARNING \"There is no python3: micro of this installation needs GCC 12's libstdc++\")
    else()
      execute_process(COMMAND \${python} \"${CMAKE_CURRENT_SOURCE_DIR}/scripts/loosen_version.py\"
        \${library} GLIBCXX_3.4.30 COMMAND_ERROR_IS_FATAL ANY)
    endif()
  endforeach()")
# There the program is on PATH, its layouts go by their names, and there are no sources to refer to.
file(REMOVE_RECURSE ${CMAKE_BINARY_DIR}/generated/pages)
file(GLOB_RECURSE pages RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS docs/*.md)
foreach(page README.md ${pages})
  file(READ ${page} text)
  string(REPLACE "build/nearmetal" "nearmetal" text "${text}")
  string(REPLACE "build/" "" text "${text}")
  string(REGEX REPLACE "\\[([^]]*)\\]\\(((\\.\\./)*)(bench|comm|models|reports|scripts|tests)/[^)]*\\)"
    "\\1" text "${text}")
  string(REGEX REPLACE "(\\]\\((\\.\\./)*)layouts/" "\\1../../nearmetal/layouts/" text "${text}")
  string(REPLACE "cp layouts/" "cp share/nearmetal/layouts/" text "${text}")
  string(REGEX REPLACE "([^/])layouts/([a-z0-9_]+)[.]json" "\\1\\2" text "${text}")
  string(REGEX REPLACE "scripts/(compare_[a-z_]*with_torch[.]py)" "share/nearmetal/\\1" text "${text}")
  file(WRITE ${CMAKE_BINARY_DIR}/generated/pages/${page} "${text}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
endforeach()
install(DIRECTORY ${CMAKE_BINARY_DIR}/generated/pages/ DESTINATION share/doc/nearmetal)
install(DIRECTORY docs/images DESTINATION share/doc/nearmetal/docs)
install(FILES CHANGELOG.md CONTRIBUTING.md LICENSE SECURITY.md DESTINATION share/doc/nearmetal)
install(DIRECTORY layouts references DESTINATION share/nearmetal)

# The program prints what the shells and man read.
set(generated ${CMAKE_BINARY_DIR}/generated)
set(places bash share/bash-completion/completions/nearmetal zsh share/zsh/site-functions/_nearmetal
  fish share/fish/vendor_completions.d/nearmetal.fish man share/man/man1/nearmetal.1)
while(places)
  list(POP_FRONT places form place)
  get_filename_component(folder ${place} DIRECTORY)
  add_custom_command(OUTPUT ${generated}/${place}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}/${folder}
    COMMAND nearmetal generate ${form} > ${generated}/${place}
    DEPENDS nearmetal
    VERBATIM)
  list(APPEND generated_files ${generated}/${place})
endwhile()
add_custom_target(nearmetal_generated ALL DEPENDS ${generated_files})
install(DIRECTORY ${generated}/share DESTINATION .)
install(PROGRAMS scripts/compare_curves_with_torch.py scripts/compare_with_torch.py
  DESTINATION share/nearmetal)
install(FILES scripts/torch_bert.py DESTINATION share/nearmetal)
install(DIRECTORY scripts/ci DESTINATION share/nearmetal USE_SOURCE_PERMISSIONS)

# Licences of what is packed beside our own, from where the packages of Debian and NVIDIA have them.
file(GLOB licences /usr/share/doc/libdnnl[0-9]/copyright /usr/share/doc/libgomp1/copyright
  /usr/share/doc/ocl-icd-libopencl1/copyright /usr/share/doc/libhwloc15/copyright
  /usr/share/doc/libudev1/copyright /usr/share/doc/libbenchmark1*/copyright
  /usr/share/doc/libyaml-cpp0*/copyright)
if(NEARMETAL_PACK_CUDA)
  # cuDNN loads its parts, and the run-time compiler, while it runs.
  get_filename_component(cudnn_folder ${CUDNN_LIBRARY} DIRECTORY)
  get_filename_component(toolkit ${CMAKE_CUDA_COMPILER}/../.. REALPATH)
  file(GLOB parts ${cudnn_folder}/libcudnn_*.so.9 ${toolkit}/lib64/libnvrtc.so.*
    ${toolkit}/lib64/libnvrtc-builtins.so.*)
  install(FILES ${parts} DESTINATION lib/nearmetal)
  file(GLOB nvidia_licences ${toolkit}/EULA.txt /usr/share/doc/libcudnn9-cuda-*/copyright
    ${toolkit}/dist-info/nvidia_cublas-*/licenses/License.txt
    ${toolkit}/dist-info/nvidia_cuda_nvrtc-*/licenses/License.txt
    ${toolkit}/dist-info/nvidia_cudnn_*/licenses/License.txt)
  if(NOT nvidia_licences)
    message(FATAL_ERROR "NEARMETAL_PACK_CUDA: the licence texts of CUDA and cuDNN are not beside "
      "the toolkit, and NVIDIA's libraries may not be passed on without")
  endif()
  list(APPEND licences ${nvidia_licences})
endif()
foreach(licence ${licences})
  string(REGEX REPLACE "/(licenses/)?[^/]*$" "" package ${licence})
  get_filename_component(package ${package} NAME)
  install(FILES ${licence} DESTINATION share/doc/nearmetal/licences RENAME ${package}.txt)
endforeach()

set(CPACK_PACKAGE_VENDOR "nearmetal")
set(CPACK_PACKAGE_CONTACT "the nearmetal maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains a real ResNet on synthetic data and reports how fast")
string(TOLOWER ${CMAKE_SYSTEM_NAME} system)
set(CPACK_PACKAGE_FILE_NAME nearmetal-${PROJECT_VERSION}-${system}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_GENERATOR TGZ)
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
# Built on Debian 12 it needs no more, as scripts/needed_libraries.py checks; else not older ones than
# it was built with.
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE libc ERROR_QUIET)
string(REGEX MATCH "[0-9.]+" libc "${libc}")
string(REGEX MATCH "^[0-9]+" compiler ${CMAKE_CXX_COMPILER_VERSION})
if(libc VERSION_LESS_EQUAL 2.36 AND compiler VERSION_LESS_EQUAL 12)
  set(libc 2.34)
  set(compiler 11)
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${libc}), libstdc++6 (>= ${compiler})")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "gnuplot-nox")
include(CPack)

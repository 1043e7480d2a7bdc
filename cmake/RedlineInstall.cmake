# cmake --install: the binary, the libraries with their headers, CMake package and pkg-config file, and the shells' completion.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/redline)

install(TARGETS redline EXPORT redlineTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS redline_shared EXPORT redlineTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Relative to its own folder: --prefix may name another one than the configuration.
file(RELATIVE_PATH pkg_config_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/redline.pc.in ${PROJECT_BINARY_DIR}/redline.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/redline.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY include/redline DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.inc")
install(EXPORT redlineTargets NAMESPACE redline:: DESTINATION ${package_dir})
configure_package_config_file(cmake/redlineConfig.cmake.in ${PROJECT_BINARY_DIR}/redlineConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/redlineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/redlineConfig.cmake ${PROJECT_BINARY_DIR}/redlineConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET redline_cli)
  install(TARGETS redline_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(TARGET redline_cuda)
    install(TARGETS redline_cuda LIBRARY DESTINATION lib/redline)
  endif()
  # Found by their names, as in `redline run redline-tales` (src/cli/model_name.h).
  install(DIRECTORY assets/redline-tales assets/redline-shapes DESTINATION ${CMAKE_INSTALL_DATADIR}/redline
          PATTERN training EXCLUDE PATTERN reference EXCLUDE)
  # The binary writes its own shell completion.
  foreach(shell IN ITEMS bash zsh fish)
    install(CODE "execute_process(COMMAND $<TARGET_FILE:redline_cli> completion ${shell}
      OUTPUT_FILE ${PROJECT_BINARY_DIR}/redline.${shell} COMMAND_ERROR_IS_FATAL ANY)")
  endforeach()
  install(FILES ${PROJECT_BINARY_DIR}/redline.bash RENAME redline
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${PROJECT_BINARY_DIR}/redline.zsh RENAME _redline DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${PROJECT_BINARY_DIR}/redline.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

from layerstep.measurement.calibration.error_rates import main

main()

"""The bundled workload: known kernels that declare their work, run as a process of their own.

`python -m roofmon.demo` runs them in rounds until it is told to stop. The kernels are the same on NumPy
(CPU) and CuPy (GPU); what differs between the two is behind `device.Device`.
"""

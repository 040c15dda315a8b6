/* Lab stand-in for NVIDIA's kernel module: compiles against real headers, carries version and licence, drives nothing. */
#include <linux/init.h>
#include <linux/module.h>

static int __init stand_in_init(void) { return 0; }
static void __exit stand_in_exit(void) { }
module_init(stand_in_init);
module_exit(stand_in_exit);
MODULE_LICENSE("@LICENSE@");
MODULE_VERSION("@VERSION@");
MODULE_ALIAS("pci:v000010DEd*sv*sd*bc03sc00i00*");
MODULE_ALIAS("pci:v000010DEd*sv*sd*bc03sc02i00*");

"""Block models whose clusters are crossed partitions: choosing parts, drawing edges, and their rates."""

// Spaces that everybody may read, and how many there are besides.
function spaces(log) {
  $("log").hidden = !log;
  if (!log) return;
  const size = ({ role, position, feeds, bytes }) => {
    const parts = [`position ${whole.format(position)}`, `${whole.format(feeds)} ${feeds === 1 ? "feed" : "feeds"}`, `${whole.format(Math.ceil(bytes / 1024))} KiB`];
    return (role === "replica" ? ["replica", ...parts] : parts).join(", ");
  };
  const others = log.others > 0 ? [["others", whole.format(log.others)]] : [];
  rows("spaces", [...log.spaces.map((each) => [each.space, size(each)]), ...others]);
  $("aside").hidden = log.aside === 0;
  show("aside", `${whole.format(log.aside)} blocks of replicas cannot be sent: see feedmill log conflicts`);
}

"""Word lists and random strings; all written for this project."""

NAMES = """Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Kate Leo Mia Noah Olga Paul Rosa Sam Tina
Uwe Vera Will Yuki Zoe Aiko Haru Kenji Mei Wei Lin Omar Sara Ravi Priya Ivan Elena Marco Lucia
Pedro Nina""".split()
CITIES = """Paris Rome Berlin Tokyo Osaka Kyoto London Madrid Oslo Vienna Prague Lisbon Dublin Athens Cairo
Delhi Mumbai Beijing Shanghai Seoul Sydney Toronto Boston Chicago Denver Lima Nairobi Zurich
Geneva Warsaw""".split()
NOUNS = (
    """apple river stone lamp chair window garden bridge candle mirror pencil basket ladder bottle
carpet engine ticket letter button forest island winter summer morning evening market station
tower castle harbor violin guitar piano drum trumpet tiger rabbit falcon turtle dolphin hammer
saw nail rope wheel anchor""".split()
)
COLORS = "red blue green yellow black white orange purple brown silver golden gray pink".split()
PRODUCTS = (
    """laptop phone tablet camera headphones keyboard monitor printer router backpack jacket boots
umbrella kettle blender toaster bicycle helmet tent notebook""".split()
)
COMPANIES = "Nordwind Acorn Bluefin Kestrel Lumen Orchard Quartz Sandpiper Tundra Velvet".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
_ONSETS = "b c d f g h j k l m n p r s t v w z br cr dr fl gr kl pl pr st tr sh ch th".split()
_VOWELS = "a e i o u ai ea oo".split()
_CODAS = ["", "", "", "n", "r", "l", "s", "t", "m", "k"]


def pseudo_word(rng, capital=False):
    """A pronounceable word that is in no list."""
    word = "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)
        for _ in range(rng.randint(1, 3))
    )
    return word.capitalize() if capital else word


def name(rng):
    return pseudo_word(rng, True) if rng.random() < 0.4 else rng.choice(NAMES)


def city(rng):
    return pseudo_word(rng, True) if rng.random() < 0.4 else rng.choice(CITIES)


def thing(rng):
    return rng.choice(NOUNS) if rng.random() < 0.6 else pseudo_word(rng)


def phrase(rng, low=2, high=4):
    return " ".join(thing(rng) for _ in range(rng.randint(low, high)))


def code(rng):
    """A short code of letters and digits."""
    letters = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    return (
        f"{letters}{rng.randint(10, 9999)}"
        if rng.random() < 0.5
        else f"{letters}-{rng.randint(100, 999)}"
    )


def date(rng):
    return f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def clock(rng):
    return f"{rng.randint(0, 23):02}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02}"


def strange(rng, pool):
    """A string that is hard to copy: uniformly drawn token texts, digits, or rare characters."""
    kind = rng.random()
    if pool and kind < 0.6:
        joiner = rng.choice(["", " ", " ", "-"])
        return joiner.join(rng.choice(pool) for _ in range(rng.randint(2, 9)))
    if kind < 0.75:
        return "".join(str(rng.randint(0, 9)) for _ in range(rng.randint(3, 9)))
    if kind < 0.9:
        return " ".join(pseudo_word(rng, rng.random() < 0.3) for _ in range(rng.randint(1, 5)))
    blocks = (
        (0x4E00, 0x9FA5),
        (0x3041, 0x3096),
        (0x30A1, 0x30FA),
        (0xC0, 0x17F),
        (0x1F600, 0x1F64F),
        (0x410, 0x44F),
    )
    return "".join(chr(rng.randint(*rng.choice(blocks))) for _ in range(rng.randint(1, 5)))
